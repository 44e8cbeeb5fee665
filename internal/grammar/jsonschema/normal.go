package jsonschema

import (
	"strings"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// maxInPlace is the maximum depth of schemas that apply other schemas to the same value.
const maxInPlace = 100

// normal returns the set of a conj. The caller must not change it.
func (c *compiler) normal(k conj) (*set, error) {
	if len(k) == 0 {
		return anySet, nil
	}
	key := k.key()
	if s := c.sets[key]; s != nil {
		return s, nil
	}
	if c.busy[key] || c.depth > maxInPlace {
		return nil, fail(c.path(k), "the schema refers to itself without end")
	}
	c.busy[key] = true
	c.depth++
	defer func() { c.depth--; delete(c.busy, key) }()
	var s *set
	if len(k) == 1 {
		var err error
		if s, err = c.nodeSet(&c.nodes[k[0]]); err != nil {
			return nil, err
		}
	} else {
		s = anySet
		for _, id := range k {
			one, err := c.normal(conj{id})
			if err != nil {
				return nil, err
			}
			if s, err = c.both(s, one, c.nodes[id].path); err != nil {
				return nil, err
			}
		}
	}
	c.sets[key] = s
	return s, nil
}

// both intersects sets.
func (c *compiler) both(a, b *set, path string) (*set, error) {
	if err := c.b.Budget.Spend(meeting(a, b)); err != nil {
		return nil, err
	}
	if a == anySet {
		return b, nil
	}
	if b == anySet {
		return a, nil
	}
	s, ok := intersect(a, b)
	if !ok {
		return nil, fail(path, "the schema has too many alternatives")
	}
	return s, nil
}

// refused are keywords that cannot be enforced.
var refused = map[string]string{
	"nullable":    `the keyword is not one of JSON Schema; use "type": [..., "null"]`,
	"extends":     "the keyword is not supported",
	"disallow":    "the keyword is not supported",
	"divisibleBy": "the keyword is not supported; use multipleOf",
}

// nodeSet returns the set of one schema.
func (c *compiler) nodeSet(n *node) (*set, error) {
	if allowed, ok := n.v.(bool); ok {
		if allowed {
			return anySet, nil
		}
		return &set{}, nil
	}
	r := reader{c: c, o: n.v.(*object), path: n.path} //nolint:forcetypeassert // add has checked it
	if err := r.keywords(); err != nil {
		return nil, err
	}
	if _, ok := r.o.get("$ref"); ok && c.draft7() {
		return r.ref(anySet) // its siblings are ignored there
	}
	s, err := r.types()
	if err != nil {
		return nil, err
	}
	for _, step := range []func(*set) (*set, error){
		r.ref, r.dynamicRef, r.values, r.allOf, r.anyOf, r.oneOf, r.not, r.condition, r.dependencies, r.unevaluated,
	} {
		if s, err = step(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// draft7 reports whether the schema says that it follows draft 7 or an older one.
func (c *compiler) draft7() bool {
	o, ok := c.root.(*object)
	if !ok {
		return false
	}
	uri, _ := o.values["$schema"].(string)
	return strings.Contains(uri, "draft-07") || strings.Contains(uri, "draft-06") || strings.Contains(uri, "draft-04")
}

// sub makes a node of the value of a keyword.
func (r *reader) sub(v any, path string) (conj, error) {
	if v == true {
		return nil, nil
	}
	id, err := r.c.add(v, path)
	return conj{id}, err
}

// list reads a keyword that has a list of schemas.
func (r *reader) list(keyword string) ([]*set, error) {
	v, ok := r.o.get(keyword)
	if !ok {
		return nil, nil
	}
	path := join(r.path, keyword)
	items, ok := v.([]any)
	if !ok || len(items) == 0 {
		return nil, fail(path, "want a list of schemas")
	}
	var out []*set
	for i, item := range items {
		k, err := r.sub(item, path+"["+itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		s, err := r.c.normal(k)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (r *reader) allOf(s *set) (*set, error) {
	list, err := r.list("allOf")
	for _, t := range list {
		if s, err = r.c.both(s, t, r.path); err != nil {
			return nil, err
		}
	}
	return s, err
}

func (r *reader) anyOf(s *set) (*set, error) {
	list, err := r.list("anyOf")
	if list == nil || err != nil {
		return s, err
	}
	return r.any(s, list, "anyOf")
}

// any intersects s with the union of list.
func (r *reader) any(s *set, list []*set, keyword string) (*set, error) {
	out := &set{}
	for _, t := range list {
		one, err := r.c.both(s, t, join(r.path, keyword))
		if err != nil {
			return nil, err
		}
		out.union(one)
	}
	return out, nil
}

func (r *reader) oneOf(s *set) (*set, error) {
	list, err := r.list("oneOf")
	if list == nil || err != nil {
		return s, err
	}
	for i := range list {
		if list[i], err = r.c.both(s, list[i], r.path); err != nil {
			return nil, err
		}
	}
	for i, a := range list {
		for j, b := range list[:i] {
			together, err := r.c.both(a, b, r.path)
			if err != nil {
				return nil, err
			}
			empty, err := r.c.provablyEmpty(together, 0)
			if err != nil {
				return nil, err
			}
			if !empty {
				return nil, fail(join(r.path, "oneOf"), "a document may satisfy both schemas %d and %d; use anyOf, or give them a property whose constants differ", j, i)
			}
		}
	}
	return r.any(anySet, list, "oneOf")
}

// maxProof is the maximum depth of a proof that schemas exclude each other.
const maxProof = 4

// provablyEmpty reports whether s certainly allows no value.
func (c *compiler) provablyEmpty(s *set, depth int) (bool, error) {
	if s.null || s.yes || s.no || depth > maxProof {
		return false, nil
	}
	for _, n := range s.numbers {
		if n.texts != nil {
			return false, nil
		}
		if d, err := c.numberDFA(n, ""); err != nil || !d.IsEmpty() {
			return false, err
		}
	}
	for _, t := range s.strings {
		if empty, err := c.noStrings(t); err != nil || !empty {
			return false, err
		}
	}
	for _, a := range s.arrays {
		empty, err := c.anyEmpty(min(a.min, a.prefix()+1), depth, a.item)
		if err != nil || !empty {
			return false, err
		}
	}
	for _, o := range s.objects {
		var failed error
		empty, err := c.anyEmpty(len(o.required), depth, func(i int) conj {
			k, err := c.property(o, o.required[i])
			if err != nil {
				failed = err
			}
			return k
		})
		if err != nil || failed != nil || !empty {
			return false, firstError(err, failed)
		}
	}
	return true, nil
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// anyEmpty reports whether one of n schemas provably allows nothing.
func (c *compiler) anyEmpty(n, depth int, schema func(i int) conj) (bool, error) {
	for i := range n {
		s, err := c.normal(schema(i))
		if err != nil {
			return false, err
		}
		empty, err := c.provablyEmpty(s, depth+1)
		if err != nil || empty {
			return empty, err
		}
	}
	return false, nil
}

// spend takes steps for n things.
func (c *compiler) spend(n int) error {
	if err := c.b.Budget.Spend(200 * n); err != nil {
		return dfa.ErrTooLarge
	}
	return nil
}
