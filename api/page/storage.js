// The browser's storage. Where it allows none, values are kept in memory until the page is closed.

function memory() {
  const values = new Map();
  return {getItem: k => values.get(k) ?? null, setItem: (k, v) => values.set(k, String(v)), removeItem: k => values.delete(k), keys: () => [...values.keys()], lasts: false};
}

function open(name) {
  try {
    const storage = window[name]; // throws, or is null, where a setting of the browser or a sandbox forbids it
    storage.getItem('heft.theme');
    return {getItem: k => storage.getItem(k), setItem: (k, v) => storage.setItem(k, v), removeItem: k => storage.removeItem(k), keys: () => Object.keys(storage), lasts: true};
  } catch {
    return memory();
  }
}

export const local = open('localStorage');
export const session = open('sessionStorage');

/** lasts says whether values outlive the page. */
export const lasts = () => local.lasts;

/** remember keeps a value, unless the storage is full. */
export function remember(storage, key, value) {
  try { storage.setItem(key, value); } catch { /* it holds until the page is closed */ }
}
