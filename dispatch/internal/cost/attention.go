package cost

import (
	"cmp"

	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/meta"
)

// attentionLoad is the workload of one attention, or of its indexer.
type attentionLoad struct {
	heads  float64
	window int // positions that a token attends to, 0 for all
	rate   int // tokens that a position summarises, 0 for one
}

// sparseLoad is a layer of the KV cache of which each token reads only some positions.
type sparseLoad struct {
	cache  kvcache.Config
	chosen int // 0 for all
	rate   int // tokens that a position summarises, 0 for one
}

// attend adds an attention. Its indexer computes scores for all positions. Layers that share the
// cache of an earlier one are counted with that one.
func (w *workload) attend(s *meta.AttentionSpec) {
	chosen := chosenOf(s)
	w.attention = append(w.attention, attentionLoad{heads: float64(s.Heads), window: cmp.Or(s.Window, s.Chunk, chosen)})
	if heads := indexHeads(s); heads > 0 {
		w.attention = append(w.attention, attentionLoad{heads: heads})
	}
	if c := s.Compressed; c != nil && c.Pool != nil && s.Layer >= 0 && s.Layer < len(w.cache.Layers) {
		w.attendEntries(s, c)
	}
	if chosen == 0 || s.Shared || s.Layer < 0 || s.Layer >= len(w.cache.Layers) {
		return
	}
	layer, rest := w.cache.Layers[s.Layer], kvcache.LayerShape{Heads: 1}
	if s.MLA != nil { // the second vector of each token is the key of an indexer, which reads all of them
		rest.VWidth, layer.VWidth = layer.VWidth, 0
	}
	w.cache.Layers[s.Layer] = rest
	w.sparse = append(w.sparse, sparseLoad{cache: w.oneLayer(layer), chosen: chosen})
}

// attendEntries adds the entries of compressed attention. A token reads the keys of its window, which
// the cache keeps beyond it, the entries that the indexer chooses, and the indexer's keys of all of
// them.
func (w *workload) attendEntries(s *meta.AttentionSpec, c *meta.CompressedSpec) {
	layer := &w.cache.Layers[s.Layer]
	layer.Window, layer.VWidth = s.Window, 0
	read := func(heads, width, count int) {
		w.attention = append(w.attention, attentionLoad{float64(heads), count, c.Pool.Rate})
		w.sparse = append(w.sparse, sparseLoad{w.oneLayer(kvcache.LayerShape{Heads: 1, KWidth: width}), count, c.Pool.Rate})
	}
	if c.Indexer == nil {
		read(s.Heads, c.Pool.Dim, 0)
		return
	}
	read(s.Heads, c.Pool.Dim, c.Indexer.Count)
	read(c.Indexer.Heads, c.Indexer.HeadDim, 0)
}

// oneLayer returns a KV cache with one layer.
func (w *workload) oneLayer(l kvcache.LayerShape) kvcache.Config {
	return kvcache.Config{Layers: []kvcache.LayerShape{l}, DType: w.cache.DType}
}

// chosenOf returns the number of positions that a token of sparse attention reads for each key head, or
// 0 if it reads all.
func chosenOf(s *meta.AttentionSpec) int {
	switch b := s.Blocks; {
	case s.MLA != nil:
		return s.MLA.Chosen
	case b != nil && b.Averaged: // all heads share a selection, and read the positions after it
		return (b.Count + 1) * b.Size
	case b != nil:
		return b.Count * b.Size * max(1, b.Heads/max(s.KVHeads, 1))
	case s.KeyBias != nil:
		return s.KeyBias.Count
	}
	return 0
}

// indexHeads returns the number of heads with which s computes scores to choose positions.
func indexHeads(s *meta.AttentionSpec) float64 {
	switch b := s.Blocks; {
	case s.MLA != nil && s.MLA.Indexer != nil:
		return float64(s.MLA.Indexer.Heads)
	case b != nil && b.Averaged: // one score for each block
		return float64(b.Heads) / float64(max(b.Size, 1))
	case b != nil:
		return float64(b.Heads)
	case s.KeyBias != nil && s.KeyBias.Count > 0:
		return float64(s.KVHeads)
	}
	return 0
}

// cacheReads returns the bytes of the KV cache that a pass reads for the last tokens of n tokens of a
// sequence.
func (w *workload) cacheReads(n, tokens int) int64 {
	bytes := w.cache.ReadBytes(n)
	for i := range w.sparse {
		s := &w.sparse[i]
		read := n / max(s.rate, 1)
		if s.chosen > 0 {
			read = min(read, tokens*s.chosen)
		}
		bytes += s.cache.ReadBytes(read)
	}
	return bytes
}
