try {
  const kept = JSON.parse(localStorage.getItem("cued")) || {};
  for (const name of ["theme", "density"]) if (kept[name]) document.documentElement.dataset[name] = kept[name];
} catch {}
