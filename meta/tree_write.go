package meta

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// WriteTree returns the tree below root as JSON, without spaces. It is the inverse of [ReadTree].
// It returns an error if a module or parameter is shared with one outside of the tree.
func WriteTree(root *Module) ([]byte, error) {
	w := treeWriter{modules: map[*Module]string{}, params: map[*Param]string{}}
	node, err := w.module(root, "")
	if err != nil {
		return nil, fmt.Errorf("meta: tree: %w", err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(node); err != nil {
		return nil, fmt.Errorf("meta: tree: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

type treeNode struct {
	Class    string  `json:"class"`
	Params   [][]any `json:"params,omitempty"`
	Buffers  [][]any `json:"buffers,omitempty"`
	Children [][]any `json:"children,omitempty"`
}

type treeAlias struct {
	SameAs string `json:"same_as"`
}

// treeWriter holds the first name of every module and parameter that was written.
type treeWriter struct {
	modules map[*Module]string
	params  map[*Param]string
}

func (w *treeWriter) module(m *Module, path string) (any, error) {
	if m.SameAs != nil {
		first, ok := w.modules[m.Resolve()]
		if !ok {
			return nil, fmt.Errorf("%s: shares a module that is not earlier in the tree", path)
		}
		return treeAlias{first}, nil
	}
	node := treeNode{Class: m.Class}
	for _, p := range m.Params {
		row := []any{p.Name, shapeOf(p.Shape), p.DType.String()}
		if p.SameAs != nil {
			first, ok := w.params[p.Resolve()]
			if !ok {
				return nil, fmt.Errorf("%s: shares a parameter that is not earlier in the tree", Join(path, p.Name))
			}
			row = append(row, first)
		} else {
			w.params[p] = Join(path, p.Name)
		}
		node.Params = append(node.Params, row)
	}
	for _, b := range m.Buffers {
		node.Buffers = append(node.Buffers, []any{b.Name, shapeOf(b.Shape), b.DType.String(), b.Persistent})
	}
	for _, c := range m.Children {
		child, err := w.module(c, Join(path, c.Name))
		if err != nil {
			return nil, err
		}
		node.Children = append(node.Children, []any{c.Name, child})
	}
	w.modules[m] = path
	return node, nil
}

// shapeOf returns the shape, or [] instead of nil for a scalar.
func shapeOf(shape []int) []int {
	if shape == nil {
		return []int{}
	}
	return shape
}
