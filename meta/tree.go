package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A tree in JSON is an object
//
//	{"class": "Linear",
//	 "params":   [["weight", [4, 3], "float32"], …],
//	 "buffers":  [["mean", [4], "float32", true], …],
//	 "children": [["name", {…}], …]}
//
// in registration order, without empty lists. The optional fourth element of a parameter is the
// dotted name of the parameter that it is tied to. That of a buffer says whether checkpoints
// contain it. A child {"same_as": "a.b"} is the module a.b under another name. Both kinds of
// names begin at the root and refer to earlier modules or parameters.

// ReadTree parses a tree in JSON. Its modules have no Kind and its parameters no sources. For any
// input it returns an error or a tree that can be walked in finite time.
func ReadTree(data []byte) (*Module, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var top any
	err := dec.Decode(&top)
	if err == nil {
		if _, end := dec.Token(); end != io.EOF {
			err = errors.New("text after the tree")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("meta: tree: %w", err)
	}
	r := treeReader{size: map[*Module]int{}, index: map[*Module]*names{}}
	root, err := r.module("", top, nil)
	if err != nil {
		return nil, fmt.Errorf("meta: tree: %w", err)
	}
	return root, nil
}

// maxTreeNames is the maximum number of modules in a tree, each counted under all of its names.
// Without it, a few aliases of aliases could stand for more modules than can be listed.
const maxTreeNames = 1 << 20

type treeReader struct {
	root  *Module
	count tree            // adds up sizes
	size  map[*Module]int // number of names in complete modules, including those under aliases
	index map[*Module]*names
}

// names holds the children and parameters of one module by name.
type names struct {
	children map[string]*Module
	params   map[string]*Param
}

// placed adds the name of a module to an error. The path is assembled while returning, so that a
// deep tree of long names costs nothing without an error.
func placed(name string, err error) error {
	var at *treeError
	if errors.As(err, &at) {
		at.path = Join(name, at.path)
		return at
	}
	return &treeError{name, err}
}

type treeError struct {
	path string
	err  error
}

func (e *treeError) Error() string {
	path := e.path
	if len(path) > 200 {
		path = path[:100] + "…" + path[len(path)-100:]
	}
	if path == "" {
		return e.err.Error()
	}
	return path + ": " + e.err.Error()
}

func (e *treeError) Unwrap() error { return e.err }

func (r *treeReader) module(name string, v any, parent *names) (*Module, error) {
	node, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("got %s, want a module", kindOf(v))
	}
	if ref, there := node["same_as"]; there {
		if parent == nil {
			return nil, errors.New("the root has same_as, want a module")
		}
		m, err := r.alias(name, ref)
		parent.children[name] = m
		return m, err
	}
	class, ok := node["class"].(string)
	if !ok {
		return nil, errors.New("the module has no class")
	}
	m := &Module{Name: name, Class: class}
	size := 1
	if parent == nil {
		r.root = m
	} else {
		parent.children[name] = m
	}
	own := &names{children: map[string]*Module{}, params: map[string]*Param{}}
	r.index[m] = own
	if err := r.tensors(m, own, node); err != nil {
		return nil, err
	}
	children, err := rows(node, "children", 2, 2)
	if err != nil {
		return nil, err
	}
	for _, row := range children {
		childName, err := properName(row[0])
		if err == nil && own.taken(childName) {
			err = errors.New("the name is used twice")
		}
		if err != nil {
			return nil, placed(childName, err)
		}
		child, err := r.module(childName, row[1], own)
		if err != nil {
			return nil, placed(childName, err)
		}
		m.Children = append(m.Children, child)
		if size += r.size[child.Resolve()]; size > maxTreeNames {
			return nil, placed(childName, errors.New("the tree has too many modules, counted by name"))
		}
	}
	r.size[m] = size
	return m, nil
}

// alias returns a module that is another name of an existing module.
func (r *treeReader) alias(name string, ref any) (*Module, error) {
	path, ok := ref.(string)
	if !ok || path == "" {
		return nil, errors.New("same_as: want the path of a module")
	}
	target := r.find(path)
	if target == nil || r.size[target] == 0 {
		return nil, fmt.Errorf("same_as: got %.200q, want an earlier module", path)
	}
	return &Module{Name: name, SameAs: target}, nil
}

// find returns the module at a path from the root. It follows aliases.
func (r *treeReader) find(path string) *Module {
	m := r.root
	for path != "" && m != nil {
		var name string
		name, path, _ = strings.Cut(path, ".")
		if m = r.index[m].children[name]; m != nil {
			m = m.Resolve()
		}
	}
	return m
}

// tensors reads the parameters and buffers of one module.
func (r *treeReader) tensors(m *Module, own *names, node map[string]any) error {
	params, err := rows(node, "params", 3, 4)
	if err != nil {
		return err
	}
	for _, row := range params {
		p := &Param{}
		if p.Name, p.Shape, p.DType, err = r.tensor(row, own); err != nil {
			return placed(p.Name, err)
		}
		if len(row) == 4 {
			if p.SameAs, err = r.tie(row[3], p); err != nil {
				return placed(p.Name, err)
			}
		}
		own.params[p.Name] = p
		m.Params = append(m.Params, p)
	}
	buffers, err := rows(node, "buffers", 4, 4)
	if err != nil {
		return err
	}
	for _, row := range buffers {
		b := &Buffer{}
		if b.Name, b.Shape, b.DType, err = r.tensor(row, own); err != nil {
			return placed(b.Name, err)
		}
		var ok bool
		if b.Persistent, ok = row[3].(bool); !ok {
			return placed(b.Name, errors.New("persistent: want true or false"))
		}
		own.params[b.Name] = nil
		m.Buffers = append(m.Buffers, b)
	}
	return nil
}

// tensor reads the name, shape and dtype with which parameters and buffers begin.
func (r *treeReader) tensor(row []any, own *names) (name string, shape []int, dtype DType, err error) {
	if name, err = properName(row[0]); err != nil {
		return name, nil, 0, err
	}
	if own.taken(name) {
		return name, nil, 0, errors.New("the name is used twice")
	}
	dims, ok := row[1].([]any)
	if !ok {
		return name, nil, 0, fmt.Errorf("got %s, want a shape", kindOf(row[1]))
	}
	f := fields{errs: &fieldErrors{}}
	shape = make([]int, len(dims))
	for i, v := range dims {
		if shape[i], ok = f.integer("", v, 0, 1<<31-1); !ok {
			return name, nil, 0, fmt.Errorf("shape[%d]: want an integer from 0 to 2147483647", i)
		}
	}
	text, ok := row[2].(string)
	if !ok {
		return name, nil, 0, fmt.Errorf("got %s, want a dtype", kindOf(row[2]))
	}
	if dtype, err = ParseDType(text); err != nil {
		return name, nil, 0, fmt.Errorf("unknown dtype %.40q", text)
	}
	if r.count.count("", shape); r.count.err != nil {
		return name, nil, 0, errors.New("the tree is too large")
	}
	return name, shape, dtype, nil
}

// tie returns the parameter to which p is tied.
func (r *treeReader) tie(ref any, p *Param) (*Param, error) {
	if ref == nil {
		return nil, nil
	}
	path, ok := ref.(string)
	if !ok {
		return nil, errors.New("same_as: want the path of a parameter")
	}
	at, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		at, name = path[:i], path[i+1:]
	}
	var target *Param
	if m := r.find(at); m != nil {
		target = r.index[m].params[name]
	}
	if target == nil {
		return nil, fmt.Errorf("same_as: got %.200q, want an earlier parameter", path)
	}
	if Elements(target.Shape) != Elements(p.Shape) || target.DType != p.DType {
		return nil, fmt.Errorf("same_as: %.200q has another shape or dtype", path)
	}
	return target.Resolve(), nil
}

func (n *names) taken(name string) bool {
	_, param := n.params[name]
	_, child := n.children[name]
	return param || child
}

// properName returns the name of a module or tensor, with torch's restrictions.
func properName(v any) (string, error) {
	name, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("got %s, want a name", kindOf(v))
	}
	if name == "" || strings.Contains(name, ".") {
		return name, fmt.Errorf("got %.200q, want a name without dots", name)
	}
	return name, nil
}

// rows returns a list of lists with least to most elements each.
func rows(node map[string]any, field string, least, most int) ([][]any, error) {
	v := node[field]
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: got %s, want a list", field, kindOf(v))
	}
	out := make([][]any, len(list))
	for i, v := range list {
		row, ok := v.([]any)
		if !ok || len(row) < least || len(row) > most {
			return nil, fmt.Errorf("%s[%d]: want a list of %d elements", field, i, least)
		}
		out[i] = row
	}
	return out, nil
}
