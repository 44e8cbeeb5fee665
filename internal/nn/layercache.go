package nn

import "github.com/heftai/heft/internal/backend"

// A layerCache is the part of the KV cache that belongs to one layer, in one pass.
type layerCache struct {
	backend.KV
	spans []backend.Span // the sequences of the pass with their pages
	slots []int32        // where the keys and values of the rows are stored
}

// cacheOf returns the part of a layer, by its index in [Program.KV] for the first run of its block. It is valid for one pass.
func (c *Context) cacheOf(layer int) layerCache {
	kv := &c.in.KV[layer+c.run.offset]
	group := &c.in.Groups[kv.Group]
	return layerCache{kv.KV, group.Spans, group.Slots}
}
