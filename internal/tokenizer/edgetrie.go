package tokenizer

// edgeTrie is a trie of many strings with its edges in one hash table: a node and a byte lead to
// the next node and the id of the string that ends there.
type edgeTrie struct {
	edges *pairTable
	nodes int32
}

func newEdgeTrie() *edgeTrie { return &edgeTrie{newPairTable(1 << 10), 0} }

// add enters s with an id. It ignores the empty string.
func (t *edgeTrie) add(s string, id int32) {
	node := int32(0)
	for i := range len(s) {
		if int(t.nodes) > len(t.edges.slots)*2/3 {
			t.edges = t.edges.grown()
		}
		slot, key := t.edges.slot(node, int32(s[i]))
		if slot.key == 0 {
			t.nodes++
			*slot = pairSlot{key, -1, t.nodes}
		}
		if i == len(s)-1 {
			slot.rank = id
		}
		node = slot.fused
	}
}

// edge follows the byte c from node. id is -1 if no string ends there.
func (t *edgeTrie) edge(node int32, c byte) (next, id int32, ok bool) {
	id, next, ok = t.edges.get(node, int32(c))
	return next, id, ok
}
