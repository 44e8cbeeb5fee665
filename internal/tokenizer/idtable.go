package tokenizer

import "iter"

// idTable holds a value for each of n ids. Ids up to about 2n are in a slice, so that
// looking one up is fast; those beyond are in a map, so that a vocabulary with holes takes
// memory for its tokens and not for its ids. The zero value of T stands for no value.
type idTable[T comparable] struct {
	near []T
	far  map[int32]T
}

// holes is the number of unused ids that the slice of a small vocabulary may have.
const holes = 1 << 16

// newIDTable makes a table for n values whose largest id is top.
func newIDTable[T comparable](n int, top int32) idTable[T] {
	return idTable[T]{near: make([]T, min(int(top)+1, 2*n+holes))}
}

func (t *idTable[T]) get(id int32) T {
	if uint32(id) < uint32(len(t.near)) {
		return t.near[id]
	}
	return t.far[id]
}

// set stores v for an id that is not negative.
func (t *idTable[T]) set(id int32, v T) {
	if int(id) < len(t.near) {
		t.near[id] = v
		return
	}
	if t.far == nil {
		t.far = map[int32]T{}
	}
	t.far[id] = v
}

// push stores v for the next id. It is for tables without holes.
func (t *idTable[T]) push(v T) { t.near = append(t.near, v) }

// all yields every id that may have a value, in no order.
func (t *idTable[T]) all() iter.Seq2[int32, T] {
	return func(yield func(int32, T) bool) {
		for id, v := range t.near {
			if !yield(int32(id), v) {
				return
			}
		}
		for id, v := range t.far {
			if !yield(id, v) {
				return
			}
		}
	}
}
