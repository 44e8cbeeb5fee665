package jinja

import (
	"strconv"
	"strings"
)

// methodFormat is str.format in the sandbox.
func methodFormat(st *state, v Value, s string, c *args) (Value, error) {
	return runFormat(st, v, s, c.pos, c.named())
}

// methodFormatMap is str.format_map.
func methodFormatMap(st *state, v Value, s string, c *args) (Value, error) {
	if err := c.positional(1, 1); err != nil {
		return nil, err
	}
	d, ok := c.pos[0].(*Dict)
	if !ok {
		d = &Dict{} // an error only if the text has a field
	}
	return runFormat(st, v, s, nil, d)
}

func runFormat(st *state, v Value, s string, pos []Value, named *Dict) (Value, error) {
	_, escape := v.(markup)
	f := &formatter{st: st, pos: pos, named: named, escape: escape}
	out, err := f.format(s, 2)
	if err != nil {
		return nil, err
	}
	return made(st, v, out)
}

// formatter fills replacement fields. auto counts the fields without a name,
// manual says that there are numbered ones; Python allows only one of the two.
type formatter struct {
	st     *state
	pos    []Value
	named  *Dict
	auto   int
	manual bool
	escape bool
}

// format fills the fields of s; specifications may hold fields of their own, so
// depth bounds the nesting.
func (f *formatter) format(s string, depth int) (string, error) {
	if depth == 0 {
		return "", typeErrorf("Max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c { // doubled braces stand for themselves
			b.WriteByte(c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", typeErrorf("Single '}' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			return "", typeErrorf("expected '}' before end of string")
		}
		out, err := f.field(s[:end], depth)
		if err != nil {
			return "", err
		}
		b.WriteString(out)
		if b.Len() > f.st.limits.Output {
			return "", f.st.grow(b.Len())
		}
		s = s[end+1:]
	}
	b.WriteString(s)
	return b.String(), nil
}

// fieldEnd returns the place of the brace that closes the field at the start of s.
func fieldEnd(s string) int {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats `name!conversion:spec`.
func (f *formatter) field(s string, depth int) (string, error) {
	end := strings.IndexAny(s, "!:")
	if open := strings.IndexByte(s, '['); open >= 0 && open < end {
		if shut := strings.IndexByte(s[open:], ']'); shut >= 0 {
			if end = strings.IndexAny(s[open+shut:], "!:"); end >= 0 {
				end += open + shut
			}
		}
	}
	name, conversion, rule := s, "", ""
	if end >= 0 {
		name = s[:end]
		rest := s[end:]
		if rest[0] == '!' {
			conversion, rest, _ = strings.Cut(rest[1:], ":")
			rule = rest
			if conversion == "" {
				return "", typeErrorf("end of string while looking for conversion specifier")
			}
		} else {
			rule = rest[1:]
		}
	}
	v, err := f.value(name)
	if err != nil {
		return "", err
	}
	switch conversion {
	case "":
	case "s", "r", "a":
		v, err = converted(f.st, v, rune(conversion[0]))
	default:
		err = typeErrorf("Unknown conversion specifier %s", quote(conversion))
	}
	if err != nil {
		return "", err
	}
	if rule != "" {
		if rule, err = f.format(rule, depth-1); err != nil {
			return "", err
		}
	}
	out, err := formatValue(f.st, v, rule)
	if _, isMarkup := v.(markup); f.escape && !isMarkup {
		out = escapeHTML(out)
	}
	return out, err
}

// value finds `first.attr[item]...`.
func (f *formatter) value(name string) (Value, error) {
	end := strings.IndexAny(name, ".[")
	first, rest := name, ""
	if end >= 0 {
		first, rest = name[:end], name[end:]
	}
	v, err := f.argument(first)
	for err == nil && rest != "" {
		if after, ok := strings.CutPrefix(rest, "."); ok {
			end := strings.IndexAny(after, ".[")
			if end < 0 {
				end = len(after)
			}
			v, err = getAttr(f.st, v, after[:end])
			rest = after[end:]
			continue
		}
		shut := strings.IndexByte(rest, ']')
		if rest[0] != '[' || shut < 0 {
			return nil, typeErrorf("Missing ']' in format string")
		}
		var key Value = rest[1:shut]
		if i, bad := strconv.ParseInt(rest[1:shut], 10, 64); bad == nil && i >= 0 {
			key = i
		}
		v, err = getItem(f.st, v, key)
		rest = rest[shut+1:]
	}
	return v, err
}

func (f *formatter) argument(first string) (Value, error) {
	i, notNumber := strconv.Atoi(first)
	switch {
	case first == "":
		if f.manual {
			return nil, typeErrorf("cannot switch from manual field specification to automatic field numbering")
		}
		i = f.auto
		f.auto++
	case notNumber == nil && i >= 0:
		if f.auto > 0 {
			return nil, typeErrorf("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	default:
		v, ok := f.named.Get(first)
		if !ok {
			return nil, typeErrorf("KeyError: %s", quote(first))
		}
		return v, nil
	}
	if i >= len(f.pos) {
		return nil, typeErrorf("Replacement index %d out of range for positional args tuple", i)
	}
	return f.pos[i], nil
}
