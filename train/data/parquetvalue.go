package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// parquetField is a column of a file, the key of a record.
type parquetField struct {
	name   string
	first  int // of its leaves, among all
	node   *parquetNode
	leaves []*parquetNode
}

// parquetNode is what the value of a column, or of a part of it, is.
type parquetNode struct {
	kind     parquetKind
	null     int // definition level below which the value is null; 0 if it never is
	repeated int // repetition level of a list's further elements
	filled   int // definition level from which a list has elements
	names    []string
	children []*parquetNode // of an object; the element of a list or a map
	width    int            // number of leaves
	// Of a leaf: its type, and the most that its levels may be.
	physical      int64
	most, deepest int
}

type parquetKind uint8

const (
	parquetLeaf parquetKind = iota
	parquetObject
	parquetList
	parquetMap
)

// parquetSchema compiles a schema, which is a tree depth first.
type parquetSchema struct {
	left   []parquetElement
	leaves []*parquetNode
}

// parquetFields returns the columns that keys names, all for nil, and the number of leaves of the schema.
func parquetFields(schema []parquetElement, keys []string) (list []parquetField, leaves int, err error) {
	s := parquetSchema{left: schema[1:]}
	for range schema[0].children {
		if len(s.left) == 0 {
			return nil, 0, errors.New("metadata: the schema ends within a struct")
		}
		first, name := len(s.leaves), s.left[0].name
		n, err := s.node(0, 0, 0)
		if err != nil {
			return nil, 0, fmt.Errorf("column %s: %w", name, err)
		}
		if keys != nil && !slices.Contains(keys, name) {
			continue
		}
		f := parquetField{name, first, n, s.leaves[first:len(s.leaves):len(s.leaves)]}
		for _, leaf := range f.leaves {
			if !slices.Contains([]int64{parquetBool, parquetInt32, parquetInt64, parquetFloat, parquetDouble, parquetBytes}, leaf.physical) {
				return nil, 0, fmt.Errorf("column %s: got values of type %d, want texts, numbers, booleans, lists and structs", name, leaf.physical)
			}
		}
		list = append(list, f)
	}
	if len(list) == 0 {
		return nil, 0, fmt.Errorf("got no column of a record, want some of %v", keys)
	}
	return list, len(s.leaves), nil
}

// node compiles the next node, in one of the given definition and repetition levels.
func (s *parquetSchema) node(definition, repetition, depth int) (*parquetNode, error) {
	if depth > parquetDepth || len(s.left) == 0 {
		return nil, fmt.Errorf("got values nested deeper than %d, or a schema that ends within them", parquetDepth)
	}
	switch s.left[0].repetition {
	case parquetRepeated: // a list without a group of its own
		element, err := s.bare(definition+1, repetition+1, depth+1)
		if err != nil {
			return nil, err
		}
		return &parquetNode{kind: parquetList, repeated: repetition + 1, filled: definition + 1, children: []*parquetNode{element}, width: element.width}, nil
	case parquetOptional:
		v, err := s.bare(definition+1, repetition, depth)
		if err == nil {
			v.null = definition + 1
		}
		return v, err
	}
	return s.bare(definition, repetition, depth)
}

// bare is node without its repetition.
func (s *parquetSchema) bare(definition, repetition, depth int) (*parquetNode, error) {
	e := s.left[0]
	s.left = s.left[1:]
	if e.leaf {
		n := &parquetNode{physical: e.kind, most: definition, deepest: repetition, width: 1}
		s.leaves = append(s.leaves, n)
		return n, nil
	}
	if e.children == 1 && len(s.left) > 0 && s.left[0].repetition == parquetRepeated {
		return s.list(definition+1, repetition+1, depth+1)
	}
	out := &parquetNode{kind: parquetObject}
	for range e.children {
		if len(s.left) == 0 {
			return nil, errors.New("metadata: the schema ends within a struct")
		}
		name := s.left[0].name
		child, err := s.node(definition, repetition, depth+1)
		if err != nil {
			return nil, err
		}
		out.names, out.children, out.width = append(out.names, name), append(out.children, child), out.width+child.width
	}
	if out.width == 0 {
		return nil, errors.New("got a struct without fields")
	}
	return out, nil
}

// list compiles the repeated node of a list or a map, at its own levels.
func (s *parquetSchema) list(definition, repetition, depth int) (*parquetNode, error) {
	out := &parquetNode{kind: parquetList, repeated: repetition, filled: definition}
	var element *parquetNode
	var err error
	if e := s.left[0]; !e.leaf && e.children == 1 { // the element is in it
		s.left = s.left[1:]
		element, err = s.node(definition, repetition, depth)
	} else {
		element, err = s.bare(definition, repetition, depth)
	}
	if err != nil {
		return nil, err
	}
	if element.kind == parquetObject && slices.Equal(element.names, []string{"key", "value"}) && element.null == 0 {
		out.kind = parquetMap
	}
	out.children, out.width = []*parquetNode{element}, element.width
	return out, nil
}

// parquetReader assembles a value from the values of a row's columns.
type parquetReader struct {
	columns []*parquetCursor
	err     error
}

func (r *parquetReader) fail(format string, args ...any) []byte {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	return nil
}

// peek returns the next value of a column.
func (r *parquetReader) peek(column int) (v parquetValue, ok bool) {
	c := r.columns[column]
	if c.used >= len(c.current) {
		return v, false
	}
	return c.current[c.used], true
}

// skip drops the next value of each column of a node.
func (r *parquetReader) skip(n *parquetNode, first int) {
	for c := first; c < first+n.width; c++ {
		r.columns[c].used++
	}
}

// value returns the next value of a node as JSON, or nil for null. first is its first column.
func (r *parquetReader) value(n *parquetNode, first int) []byte {
	v, ok := r.peek(first)
	if r.err != nil || !ok {
		return r.fail("the file is damaged: a row has less values in one column than in another")
	}
	if v.definition < n.null {
		r.skip(n, first)
		return nil
	}
	switch n.kind {
	case parquetLeaf:
		r.columns[first].used++
		return r.leaf(n, v)
	case parquetObject:
		out := []byte{'{'}
		for i, child := range n.children {
			if x := r.value(child, first); x != nil {
				out = member(out, n.names[i], x)
			}
			first += child.width
		}
		return append(out, '}')
	}
	return r.list(n, first, v)
}

// list returns a list or a map, of which v is the next value of the first column.
func (r *parquetReader) list(n *parquetNode, first int, v parquetValue) []byte {
	open, end := byte('['), byte(']')
	if n.kind == parquetMap {
		open, end = '{', '}'
	}
	out := []byte{open}
	if v.definition < n.filled {
		r.skip(n, first)
		return append(out, end)
	}
	for r.err == nil {
		if x := r.value(n.children[0], first); n.kind == parquetMap {
			out = r.entry(out, x)
		} else {
			if x == nil {
				x = []byte("null")
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, x...)
		}
		if v, ok := r.peek(first); !ok || v.repetition < n.repeated {
			break
		}
	}
	return append(out, end)
}

// entry adds an entry of a map, {"key", "value"}, to an object.
func (r *parquetReader) entry(out, entry []byte) []byte {
	var e struct {
		Key   *string         `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(entry, &e); err != nil || e.Key == nil {
		r.fail("got a map with keys that are not texts")
		return out
	}
	if e.Value == nil {
		return out
	}
	return member(out, *e.Key, e.Value)
}

// leaf returns a value as JSON.
func (r *parquetReader) leaf(n *parquetNode, v parquetValue) []byte {
	switch n.physical {
	case parquetBool:
		return strconv.AppendBool(nil, v.number != 0)
	case parquetInt32, parquetInt64:
		return strconv.AppendInt(nil, int64(v.number), 10)
	case parquetFloat, parquetDouble:
		x, size := math.Float64frombits(v.number), 64
		if n.physical == parquetFloat {
			size = 32
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return r.fail("got %v, want a finite number or null", x)
		}
		return strconv.AppendFloat(nil, x, 'g', -1, size)
	}
	if !utf8.Valid(v.text) {
		return r.fail("got bytes that are not UTF-8, want a text")
	}
	return quoted(string(v.text))
}

// quoted returns a text as JSON.
func quoted(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // texts always encode
	return bytes.TrimRight(b.Bytes(), "\n")
}

// member adds a key with its value to an object that is not closed.
func member(object []byte, name string, value []byte) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	object = append(object, quoted(name)...)
	return append(append(object, ':'), value...)
}

// asList returns a text that has a list of messages or tools in JSON, as data sets write it, as that list.
func (f *parquetField) asList(value []byte) []byte {
	if !slices.Contains(listColumns, f.name) || len(value) == 0 || value[0] != '"' {
		return value
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value
	}
	if list := bytes.TrimSpace([]byte(text)); len(list) > 0 && list[0] == '[' && json.Valid(list) {
		return list
	}
	return value
}
