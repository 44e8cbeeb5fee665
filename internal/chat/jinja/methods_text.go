package jinja

import (
	"strings"
	"unicode/utf8"
)

// textMethod is a method of str: v is the value, s its characters.
type textMethod func(st *state, v Value, s string, c *args) (Value, error)

// stringMethod returns a method of str, or nil if there is none of that name.
func stringMethod(name string) textMethod {
	switch name {
	case "upper":
		return plain(upper)
	case "lower":
		return plain(lower)
	case "casefold":
		return plain(func(s string) string { return lower(strings.ReplaceAll(s, "ß", "ss")) })
	case "capitalize":
		return plain(capitalize)
	case "title":
		return plain(title)
	case "swapcase":
		return plain(swapCase)
	}
	if m := editMethod(name); m != nil {
		return m
	}
	if m := searchMethod(name); m != nil {
		return m
	}
	if is := textClass(name); is != nil {
		return func(st *state, _ Value, s string, c *args) (Value, error) {
			if err := c.positional(0, 0); err != nil {
				return nil, err
			}
			return is(s), st.work(len(s) / 4)
		}
	}
	return nil
}

// editMethod finds a method that makes texts.
func editMethod(name string) textMethod {
	switch name {
	case "strip":
		return strip(bothSides)
	case "lstrip":
		return strip(leftSide)
	case "rstrip":
		return strip(rightSide)
	case "split":
		return split(fields, strings.SplitN)
	case "rsplit":
		return split(fieldsFromEnd, func(s, sep string, n int) []string { return splitFromEnd(s, sep, n-1) })
	case "splitlines":
		return methodSplitLines
	case "removeprefix":
		return trimAffix(strings.TrimPrefix)
	case "removesuffix":
		return trimAffix(strings.TrimSuffix)
	case "replace":
		return methodReplace
	case "join":
		return methodJoin
	case "center":
		return justify(bothSides)
	case "ljust":
		return justify(rightSide)
	case "rjust":
		return justify(leftSide)
	case "zfill":
		return methodZfill
	case "expandtabs":
		return methodExpandTabs
	case "format":
		return methodFormat
	case "format_map":
		return methodFormatMap
	}
	return nil
}

// made counts the size of a method's result and gives it the type of v.
func made(st *state, v Value, s string) (Value, error) { return like(v, s), st.grow(len(s)) }

func plain(f func(string) string) textMethod {
	return func(st *state, v Value, s string, c *args) (Value, error) {
		if err := c.positional(0, 0); err != nil {
			return nil, err
		}
		if !isASCII(s) { // full case mapping is slow
			if err := st.work(len(s)); err != nil {
				return nil, err
			}
		}
		return made(st, v, f(s))
	}
}

// trim strips characters of chars, or white space if chars is None or missing.
func trim(s string, chars Value, from sides) (string, error) {
	drop := IsSpace
	if chars != missing && chars != nil {
		set, err := textArg(chars, "")
		if err != nil {
			return "", err
		}
		drop = func(r rune) bool { return strings.ContainsRune(set, r) }
		if len(set) > 32 {
			known := map[rune]bool{}
			for _, r := range set {
				known[r] = true
			}
			drop = func(r rune) bool { return known[r] }
		}
	}
	if from&leftSide != 0 {
		s = strings.TrimLeftFunc(s, drop)
	}
	if from&rightSide != 0 {
		s = strings.TrimRightFunc(s, drop)
	}
	return s, nil
}

func strip(from sides) textMethod {
	return func(st *state, v Value, s string, c *args) (Value, error) {
		if err := c.positional(0, 1); err != nil {
			return nil, err
		}
		chars := at(c.pos, 0)
		if set, ok := text(chars); ok {
			if err := st.work(len(set)); err != nil {
				return nil, err
			}
		}
		out, err := trim(s, chars, from)
		if err == nil {
			err = st.work((len(s) - len(out)) / 4)
		}
		return like(v, out), err
	}
}

func textList(st *state, v Value, parts []string) (Value, error) {
	if err := st.growList(len(parts)); err != nil {
		return nil, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = like(v, p)
	}
	return &List{Items: items}, nil
}

// split makes str.split and str.rsplit. words splits at white space, at most n
// times; by splits at a separator into at most n parts; -1 means no bound.
func split(words func(s string, n int) []string, by func(s, sep string, n int) []string) textMethod {
	return func(st *state, v Value, s string, c *args) (Value, error) {
		a, err := c.bind(0, "sep", "maxsplit")
		if err != nil {
			return nil, err
		}
		limit, err := intArg(a[1], -1)
		if err != nil {
			return nil, err
		}
		limit = max(min(limit, int64(len(s)+1)), -1)
		if err := st.work(len(s) / 4); err != nil {
			return nil, err
		}
		if a[0] == missing || a[0] == nil {
			return textList(st, v, words(s, int(limit)))
		}
		sep, err := textArg(a[0], "")
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, typeErrorf("empty separator")
		}
		if limit < 0 {
			return textList(st, v, strings.Split(s, sep))
		}
		return textList(st, v, by(s, sep, int(limit)+1))
	}
}

func methodSplitLines(st *state, v Value, s string, c *args) (Value, error) {
	a, err := c.bind(0, "keepends")
	if err != nil {
		return nil, err
	}
	if err := st.work(len(s) / 4); err != nil {
		return nil, err
	}
	keep, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	return textList(st, v, splitLines(s, keep != 0))
}

func trimAffix(cut func(s, affix string) string) textMethod {
	return func(_ *state, v Value, s string, c *args) (Value, error) {
		if err := c.positional(1, 1); err != nil {
			return nil, err
		}
		fix, err := textArg(c.pos[0], "")
		return like(v, cut(s, fix)), err
	}
}

func methodReplace(st *state, v Value, s string, c *args) (Value, error) {
	if err := c.positional(2, 3); err != nil {
		return nil, err
	}
	from, err := textArg(c.pos[0], "")
	if err != nil {
		return nil, err
	}
	to, err := textArg(c.pos[1], "")
	if err != nil {
		return nil, err
	}
	if _, isMarkup := v.(markup); isMarkup {
		if _, isMarkup := c.pos[1].(markup); !isMarkup {
			to = escapeHTML(to)
		}
	}
	n, err := intArg(at(c.pos, 2), -1)
	if err != nil {
		return nil, err
	}
	out, err := replace(st, s, from, to, n)
	return like(v, out), err
}

// replace returns str.replace for the first n occurrences, all if n is negative.
func replace(st *state, s, from, to string, n int64) (string, error) {
	hits := int64(strings.Count(s, from)) // of an empty text: characters + 1, as in Python
	if n >= 0 {
		hits = min(hits, n)
	}
	if hits == 0 {
		return s, st.work(len(s) / 16)
	}
	if int64(len(to)) > int64(st.limits.Output)/hits {
		return "", st.grow(st.limits.Output + 1)
	}
	if err := st.grow(len(s) + int(hits)*len(to)); err != nil {
		return "", err
	}
	return strings.Replace(s, from, to, int(hits)), nil
}

func methodJoin(st *state, v Value, s string, c *args) (Value, error) {
	if err := c.positional(1, 1); err != nil {
		return nil, err
	}
	items, err := collect(st, c.pos[0])
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		part, ok := text(item)
		if isA[markup](v) { // which takes any value
			if part, err = (escaping{on: true}).print(st, item); err != nil {
				return nil, err
			}
		} else if !ok {
			return nil, typeErrorf("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		parts[i] = part
	}
	out, err := joinTexts(st, parts, s)
	return like(v, out), err
}

// joinTexts returns strings.Join with its size counted first.
func joinTexts(st *state, parts []string, sep string) (string, error) {
	n := 0
	for _, p := range parts {
		n += len(p) + len(sep)
		if n > st.limits.Output+len(sep) {
			return "", st.grow(n)
		}
	}
	if err := st.grow(n); err != nil {
		return "", err
	}
	return strings.Join(parts, sep), nil
}

// justify fills a text up to a width with characters on some sides.
func justify(on sides) textMethod {
	return func(st *state, v Value, s string, c *args) (Value, error) {
		if err := c.positional(1, 2); err != nil {
			return nil, err
		}
		width, err := intArg(c.pos[0], 0)
		if err != nil {
			return nil, err
		}
		fill, err := textArg(at(c.pos, 1), " ")
		if err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(fill) != 1 {
			return nil, typeErrorf("The fill character must be exactly one character long")
		}
		out, err := pad(st, s, fill, width, on)
		return like(v, out), err
	}
}

func methodZfill(st *state, v Value, s string, c *args) (Value, error) {
	if err := c.positional(1, 1); err != nil {
		return nil, err
	}
	width, err := intArg(c.pos[0], 0)
	if err != nil {
		return nil, err
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	out, err := pad(st, s, "0", width-int64(len(sign)), leftSide)
	return like(v, sign+out), err
}

func methodExpandTabs(st *state, v Value, s string, c *args) (Value, error) {
	a, err := c.bind(0, "tabsize")
	if err != nil {
		return nil, err
	}
	size, err := intArg(a[0], 8)
	if err != nil {
		return nil, err
	}
	out, err := expandTabs(st, s, size)
	return like(v, out), err
}
