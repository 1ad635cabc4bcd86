// Draws the figures in the page's own colours, again when the colour scheme changes and for print.
(() => {
  "use strict";
  const source = document.getElementById("figures");
  if (!source || !window.Plotly) return;
  const color = /^var\((--[a-z]+)\)$/;
  const config = { displayModeBar: false, responsive: true, showSendToCloud: false, plotlyServerURL: "", scrollZoom: false, doubleClick: false };

  const figures = () => {
    const style = getComputedStyle(document.documentElement);
    return JSON.parse(source.textContent, (key, value) => {
      const found = typeof value === "string" && color.exec(value);
      return found ? style.getPropertyValue(found[1]).trim() : value;
    });
  };
  const draw = () => {
    for (const [name, figure] of Object.entries(figures())) {
      Plotly.react(document.getElementById(name), figure.data, figure.layout, config);
    }
  };

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
})();
