package jinja

import (
	"strings"
	"unicode/utf8"
)

// searchMethod finds a method that looks for a text.
func searchMethod(name string) textMethod {
	switch name {
	case "startswith":
		return affix(strings.HasPrefix)
	case "endswith":
		return affix(strings.HasSuffix)
	case "find", "index":
		return find(strings.Index, name == "index")
	case "rfind", "rindex":
		return find(strings.LastIndex, name == "rindex")
	case "count":
		return methodCount
	case "partition":
		return partition(strings.Index, false)
	case "rpartition":
		return partition(strings.LastIndex, true)
	}
	return nil
}

// window returns the part of s between optional start and end arguments, and how many
// characters come before it. ok is false if the start is beyond the end of s.
func window(s string, pos []Value) (part string, before int, ok bool, err error) {
	if len(pos) == 0 {
		return s, 0, true, nil
	}
	n := utf8.RuneCountInString(s)
	from, to, err := bounds(pos, n)
	if err != nil || from > n || from > to {
		return "", 0, false, err
	}
	lo := runeOffset(s, from, n)
	hi := lo + runeOffset(s[lo:], to-from, n-from)
	return s[lo:hi], from, true, nil
}

// affix makes str.startswith and str.endswith, which also take a tuple.
func affix(has func(s, affix string) bool) textMethod {
	return func(st *state, _ Value, s string, c *args) (Value, error) {
		if err := c.positional(1, 3); err != nil {
			return nil, err
		}
		part, _, ok, err := window(s, c.pos[1:])
		if err != nil {
			return nil, err
		}
		options := []Value{c.pos[0]}
		if t, isTuple := c.pos[0].(*Tuple); isTuple {
			options = t.Items
		}
		if err := st.work(len(options)); err != nil {
			return nil, err
		}
		for _, o := range options {
			fix, err := textArg(o, "")
			if err != nil {
				return nil, err
			}
			if ok && has(part, fix) {
				return true, nil
			}
		}
		return false, nil
	}
}

// find returns str.find and similar methods. must makes it an error if the text is not found.
func find(index func(s, part string) int, must bool) textMethod {
	return func(st *state, _ Value, s string, c *args) (Value, error) {
		if err := c.positional(1, 3); err != nil {
			return nil, err
		}
		part, err := textArg(c.pos[0], "")
		if err != nil {
			return nil, err
		}
		in, before, ok, err := window(s, c.pos[1:])
		if err == nil {
			err = st.work(len(s) / 16)
		}
		if err != nil {
			return nil, err
		}
		i := -1
		if ok {
			i = index(in, part)
		}
		if i < 0 {
			if must {
				return nil, typeErrorf("substring not found")
			}
			return int64(-1), nil
		}
		return int64(before + utf8.RuneCountInString(in[:i])), nil
	}
}

func methodCount(st *state, _ Value, s string, c *args) (Value, error) {
	if err := c.positional(1, 3); err != nil {
		return nil, err
	}
	part, err := textArg(c.pos[0], "")
	if err != nil {
		return nil, err
	}
	in, _, ok, err := window(s, c.pos[1:])
	if err != nil || !ok {
		return int64(0), err
	}
	return int64(strings.Count(in, part)), st.work(len(in) / 16)
}

// partition returns str.partition and str.rpartition. If the separator is not found, the whole text
// is the first part, or the last.
func partition(index func(s, sep string) int, last bool) textMethod {
	return func(st *state, v Value, s string, c *args) (Value, error) {
		if err := c.positional(1, 1); err != nil {
			return nil, err
		}
		sep, err := textArg(c.pos[0], "")
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, typeErrorf("empty separator")
		}
		parts := []string{s, "", ""}
		if last {
			parts = []string{"", "", s}
		}
		if i := index(s, sep); i >= 0 {
			parts = []string{s[:i], sep, s[i+len(sep):]}
		}
		list, err := textList(st, v, parts)
		if err != nil {
			return nil, err
		}
		return &Tuple{Items: list.(*List).Items}, st.work(len(s) / 16)
	}
}
