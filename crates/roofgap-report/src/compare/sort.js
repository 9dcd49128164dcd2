// The page of a comparison: its tables sort and filter.
sortTables();
document.documentElement.dataset.ready = "yes";
