// Draws the plots of the gallery in the page's colours, and again when its look changes.
import "./vega.js";

const specs = JSON.parse(document.getElementById("plots").textContent);

function draw() {
  const style = getComputedStyle(document.body);
  const [ink, muted, grid] = ["ink", "muted", "grid"].map((name) => style.getPropertyValue(`--${name}`).trim());
  const series = ["after", "accent", "green", "violet", "ochre", "teal", "rose", "before"];
  const axis = { labelColor: ink, titleColor: ink, gridColor: grid, domainColor: muted, tickColor: muted, labelFontSize: 12, titleFontSize: 12 };
  const config = {
    background: null, view: { stroke: null }, axis,
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 12 },
    range: { category: series.map((name) => style.getPropertyValue(`--${name}`).trim()) },
  };
  for (const [name, spec] of Object.entries(specs)) {
    vegaEmbed(`#plot-${name}`, { ...spec, config }, { renderer: "svg", actions: false });
  }
}

draw();
new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
