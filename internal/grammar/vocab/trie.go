package vocab

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// A Trie holds the bytes of tokens in preorder: the children of node i follow it, and its subtree
// ends before Skip[i].
type Trie struct {
	Bytes []byte
	Depth []uint16
	Skip  []int32
	// First has the position in IDs of each node's first id. The ids of node i are
	// IDs[First[i]:First[i+1]]; those of its subtree are IDs[First[i]:First[Skip[i]]].
	First []int32
	IDs   []int32
}

// Len returns the number of nodes.
func (t *Trie) Len() int { return len(t.Bytes) }

// Size returns the approximate memory of t in bytes.
func (t *Trie) Size() int { return 11*len(t.Bytes) + 4*len(t.IDs) + 120 }

// entry is a token in a trie.
type entry struct {
	name []byte
	id   int32
	head uint64 // the first bytes of name, in which most names differ
}

// newEntry makes the entry of a token.
func newEntry(name []byte, id int32) entry {
	var head [8]byte
	copy(head[:], name)
	return entry{name, id, binary.BigEndian.Uint64(head[:])}
}

// newTrie makes a trie. It sorts entries. Names must not be empty.
func newTrie(entries []entry) *Trie {
	slices.SortFunc(entries, func(a, b entry) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		if c := bytes.Compare(a.name, b.name); c != 0 {
			return c
		}
		return int(a.id) - int(b.id)
	})
	nodes := 0
	var last []byte
	for _, e := range entries {
		nodes += len(e.name) - common(last, e.name)
		last = e.name
	}
	t := &Trie{
		Bytes: make([]byte, 0, nodes), Depth: make([]uint16, 0, nodes), Skip: make([]int32, nodes),
		First: make([]int32, 0, nodes+1), IDs: make([]int32, 0, len(entries)),
	}
	var path []int32 // the nodes of the last name
	last = nil
	for _, e := range entries {
		shared := common(last, e.name)
		t.close(path[shared:])
		path = path[:shared]
		for d := shared; d < len(e.name); d++ {
			path = append(path, int32(len(t.Bytes)))
			t.Bytes = append(t.Bytes, e.name[d])
			t.Depth = append(t.Depth, uint16(d))
			t.First = append(t.First, int32(len(t.IDs)))
		}
		t.IDs = append(t.IDs, e.id)
		last = e.name
	}
	t.close(path)
	t.First = append(t.First, int32(len(t.IDs)))
	return t
}

// close ends the subtrees of nodes at the current position.
func (t *Trie) close(nodes []int32) {
	for _, i := range nodes {
		t.Skip[i] = int32(len(t.Bytes))
	}
}

// common returns the length of the longest common prefix.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Find returns the node of name, or -1.
func (t *Trie) Find(name []byte) int32 {
	at, end := int32(0), int32(t.Len())
	node := int32(-1)
	for _, b := range name {
		for at < end && t.Bytes[at] != b {
			at = t.Skip[at]
		}
		if at >= end {
			return -1
		}
		node, end = at, t.Skip[at]
		at++
	}
	return node
}

// Merge returns a trie of the subtrees of nodes, each with its node's own byte first.
func (t *Trie) Merge(nodes []int32) *Trie {
	var entries []entry
	var name []byte
	for _, top := range nodes {
		base := int(t.Depth[top])
		for i := top; i < t.Skip[top]; i++ {
			name = append(name[:int(t.Depth[i])-base], t.Bytes[i])
			ids := t.IDs[t.First[i]:t.First[i+1]]
			if len(ids) == 0 {
				continue
			}
			own := bytes.Clone(name)
			for _, id := range ids {
				entries = append(entries, newEntry(own, id))
			}
		}
	}
	return newTrie(entries)
}
