package jsonschema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
)

// An Error says which part of a schema is invalid or cannot be enforced.
type Error struct {
	Path    string // of the keyword or the schema, such as properties.a.not; "" for the schema itself
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "jsonschema: " + e.Message
	}
	return "jsonschema: " + e.Path + ": " + e.Message
}

func fail(path, format string, args ...any) error {
	return &Error{path, fmt.Sprintf(format, args...)}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Compile makes the grammar of the JSON documents that satisfy a schema. Errors are of type *Error.
func Compile(lib *grammar.Library, schema []byte) (*grammar.Grammar, error) {
	b := grammar.NewBuilder(lib)
	at, err := Append(b, schema, grammar.Return)
	if err != nil {
		return nil, err
	}
	g, err := b.Grammar(at)
	return g, publicError(err)
}

// Append adds the documents that satisfy a schema to a grammar, before next. Errors are of type
// *Error.
func Append(b *grammar.Builder, schema []byte, next grammar.Pos) (grammar.Pos, error) {
	return add(b, schema, false, nil, next)
}

// AppendObject is Append, restricted to documents that are objects.
func AppendObject(b *grammar.Builder, schema []byte, next grammar.Pos) (grammar.Pos, error) {
	return add(b, schema, true, nil, next)
}

func add(b *grammar.Builder, schema []byte, objects bool, l *Layout, next grammar.Pos) (grammar.Pos, error) {
	v, err := parseValue(schema)
	if err != nil {
		return grammar.Fail, fail("", "the schema is not valid JSON: %v", err)
	}
	c := &compiler{
		b: b, rules: map[string]grammar.Rule{}, sets: map[string]*set{}, busy: map[string]bool{}, ids: map[any]int32{},
		dfas: map[*str]*dfa.DFA{}, patterns: map[string]*str{},
		layout: l,
	}
	root, err := c.add(v, "")
	if err != nil {
		return grammar.Fail, publicError(err)
	}
	c.root = v
	at, err := c.begin(conj{root}, objects, next)
	if err == nil {
		err = c.run()
	}
	return at, publicError(err)
}

// begin reads a whole document.
func (c *compiler) begin(k conj, objects bool, next grammar.Pos) (grammar.Pos, error) {
	if !objects {
		return c.value(k, next)
	}
	s, err := c.normal(k)
	if err != nil {
		return grammar.Fail, err
	}
	rule := c.b.Rule()
	var alts []grammar.Pos
	for _, o := range s.objects {
		at, err := c.record(o, c.path(k), c.layout != nil, grammar.Return)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, at)
	}
	c.b.Define(rule, c.b.Split(alts...))
	return c.b.Call(rule, next), nil
}

// publicError converts errors of grammars to the type *Error.
func publicError(err error) error {
	var own *Error
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.Is(err, grammar.ErrEmpty):
		return fail("", "no document satisfies the schema")
	case errors.Is(err, grammar.ErrLeftRecursion):
		return fail("", "the schema refers to itself without end")
	case errors.Is(err, grammar.ErrTooLarge), errors.Is(err, dfa.ErrTooLarge):
		return fail("", "the schema is too large or too complex")
	}
	return fail("", "%v", err)
}

// node is one schema in the document: a bool or an *object.
type node struct {
	v    any
	path string
}

// conj are nodes that a value must satisfy together, in ascending order without repetition. Any
// value satisfies an empty conj.
type conj []int32

// maxNodes is the maximum number of schemas of a document.
const maxNodes = 1 << 16

type compiler struct {
	b        *grammar.Builder
	root     any
	nodes    []node
	ids      map[any]int32 // by *object
	rules    map[string]grammar.Rule
	sets     map[string]*set
	busy     map[string]bool // normalised now
	dfas     map[*str]*dfa.DFA
	patterns map[string]*str // by pattern
	todo     []task
	depth    int
	layout   *Layout // nil: JSON
}

// task is a rule whose start is not defined yet.
type task struct {
	rule grammar.Rule
	c    conj
}

// add makes a node of a schema.
func (c *compiler) add(v any, path string) (int32, error) {
	switch v := v.(type) {
	case bool:
	case *object:
		if id, ok := c.ids[v]; ok {
			return id, nil
		}
	default:
		return 0, fail(path, "a schema must be an object or a boolean, it is a %s", typeName(v))
	}
	if len(c.nodes) >= maxNodes || c.b.Budget.Spend(500) != nil {
		return 0, dfa.ErrTooLarge
	}
	id := int32(len(c.nodes))
	c.nodes = append(c.nodes, node{v: v, path: path})
	if o, ok := v.(*object); ok {
		c.ids[o] = id
	}
	return id, nil
}

// and returns the conj of a and b.
func and(a, b conj) conj {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make(conj, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return out
}

func (k conj) key() string {
	var b strings.Builder
	for _, id := range k {
		b.WriteByte(byte(id >> 16))
		b.WriteByte(byte(id >> 8))
		b.WriteByte(byte(id))
	}
	return b.String()
}

// path returns the path of a conj for errors.
func (c *compiler) path(k conj) string {
	if len(k) == 0 {
		return ""
	}
	return c.nodes[k[0]].path
}

// run compiles the rules that were called.
func (c *compiler) run() error {
	for len(c.todo) > 0 {
		t := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		s, err := c.normal(t.c)
		if err != nil {
			return err
		}
		at, err := c.emit(s, c.path(t.c), grammar.Return)
		if err != nil {
			return err
		}
		c.b.Define(t.rule, at)
	}
	return nil
}

// value reads a value that satisfies k.
func (c *compiler) value(k conj, next grammar.Pos) (grammar.Pos, error) {
	s, err := c.normal(k)
	if err != nil {
		return grammar.Fail, err
	}
	if s.empty() {
		return grammar.Fail, nil
	}
	if s.small() {
		return c.emit(s, c.path(k), next)
	}
	key := k.key()
	rule, ok := c.rules[key]
	if !ok {
		rule = c.b.Rule()
		c.rules[key] = rule
		c.todo = append(c.todo, task{rule, k})
	}
	return c.b.Call(rule, next), nil
}
