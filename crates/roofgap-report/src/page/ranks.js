// Shows one rank of the map and of the table of ranks, or all.
const rankSelect = document.getElementById("rank-select");
if (rankSelect) {
  document.getElementById("rank-choice").hidden = false;
  const rows = [...document.querySelectorAll(".rank-map g[data-rank]")];
  const show = () => {
    for (const row of rows) row.classList.toggle("dim", rankSelect.value !== "" && row.dataset.rank !== rankSelect.value);
    for (const row of document.querySelectorAll("#ranks tbody tr")) {
      row.hidden = rankSelect.value !== "" && row.cells[0].textContent.trim() !== rankSelect.value;
    }
  };
  rankSelect.addEventListener("change", show);
  for (const row of rows) row.addEventListener("click", () => {
    rankSelect.value = rankSelect.value === row.dataset.rank ? "" : row.dataset.rank;
    show();
  });
}
