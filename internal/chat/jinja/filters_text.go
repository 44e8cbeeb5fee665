package jinja

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

func textFilter(name string) filterFunc {
	switch name {
	case "upper", "lower", "capitalize":
		return viaMethod(name)
	case "trim":
		return viaMethod("strip", "chars")
	case "title":
		return filterTitle
	case "center":
		return filterCenter
	case "replace":
		return filterReplace
	case "string":
		return filterString
	case "safe":
		return filterSafe
	case "e", "escape":
		return filterEscape
	case "forceescape":
		return filterForceEscape
	case "striptags":
		return filterStripTags
	case "indent":
		return filterIndent
	case "truncate":
		return filterTruncate
	case "wordcount":
		return filterWordCount
	case "wordwrap":
		return filterWordWrap
	case "format":
		return filterFormat
	case "urlencode":
		return filterURLEncode
	case "urlize":
		return filterURLize
	case "xmlattr":
		return filterXMLAttr
	case "tojson":
		return filterToJSON
	case "pprint":
		return filterPPrint
	case "default", "d":
		return filterDefault
	case "attr":
		return filterAttr
	}
	return nil
}

func filterString(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	v, _, err := softText(st, v)
	return v, err
}

func filterForceEscape(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	s, err := str(st, v)
	return markup(escapeHTML(s)), err
}

// filterTitle starts words after white space, hyphens and opening brackets.
func filterTitle(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	v, s, err := softText(st, v)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	word := 0
	flush := func(end int) {
		if r, n := utf8.DecodeRuneInString(s[word:end]); n > 0 {
			b.WriteString(upper(string(r)) + lower(s[word+n:end]))
		}
	}
	for i, r := range s {
		if IsSpace(r) || strings.ContainsRune("-({[<", r) {
			flush(i)
			b.WriteRune(r)
			word = i + utf8.RuneLen(r)
		}
	}
	flush(len(s))
	if s == "" {
		return "", nil // plain text also of Markup, as in Jinja
	}
	return made(st, v, b.String())
}

func filterCenter(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "width")
	if err != nil {
		return nil, err
	}
	width, err := intArg(a[0], 80)
	if err != nil {
		return nil, err
	}
	v, s, err := softText(st, v)
	if err != nil {
		return nil, err
	}
	out, err := pad(st, s, " ", width, bothSides)
	return like(v, out), err
}

func filterReplace(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	if a[2] == nil {
		a[2] = missing
	}
	n, err := intArg(a[2], -1)
	if err != nil {
		return nil, err
	}
	parts, err := texts(st, []Value{v, a[0], a[1]})
	if err != nil {
		return nil, err
	}
	if st.escape {
		return replaceSafely(st, v, a[0], a[1], parts, n)
	}
	return replace(st, parts[0], parts[1], parts[2], n)
}

// replaceSafely replaces in a place that escapes: what Markup replaces, or is replaced in, is escaped.
func replaceSafely(st *state, v, from, to Value, parts []string, n int64) (Value, error) {
	safe := isA[markup](v)
	if isA[markup](from) || isA[markup](to) && !safe {
		if !safe {
			parts[0] = escapeHTML(parts[0])
		}
		safe = true
	}
	if safe && !isA[markup](to) {
		parts[2] = escapeHTML(parts[2])
	}
	out, err := replace(st, parts[0], parts[1], parts[2], n)
	if !safe {
		return out, err
	}
	return markup(out), err
}

func filterSafe(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	s, err := str(st, v)
	return markup(s), err
}

func filterEscape(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	if m, ok := v.(markup); ok {
		return m, nil
	}
	s, err := str(st, v)
	if err != nil {
		return nil, err
	}
	return made(st, markup(""), escapeHTML(s))
}

// filterStripTags removes comments and tags, joins the rest with single spaces, and decodes
// entities.
func filterStripTags(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	s, err := str(st, v)
	if err != nil {
		return nil, err
	}
	s = cutBetween(cutBetween(s, "<!--", "-->"), "<", ">")
	return made(st, "", html.UnescapeString(strings.Join(fields(s, -1), " ")))
}

// cutBetween removes every part of the text from open to the next end.
func cutBetween(s, open, end string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, open)
		if i < 0 {
			break
		}
		j := strings.Index(s[i:], end)
		if j < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+j+len(end):]
	}
	return b.String() + s
}

func filterIndent(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	s, err := textArg(v, "")
	if err != nil {
		return nil, err
	}
	indent, ok := text(a[0])
	if !ok {
		width, err := intArg(a[0], 4)
		if err != nil {
			return nil, err
		}
		if err := st.grow(int(max(0, min(width, 1<<40)))); err != nil {
			return nil, err
		}
		indent = strings.Repeat(" ", int(max(0, width)))
	}
	first := a[1] != missing && truth(a[1])
	blank := a[2] != missing && truth(a[2])
	lines := splitLines(s+"\n", false)
	if len(indent) > 0 && len(lines) > st.limits.Output/len(indent) {
		return nil, st.grow(st.limits.Output + 1)
	}
	if err := st.grow(len(s) + len(lines)*(len(indent)+1)); err != nil {
		return nil, err
	}
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && first || i > 0 && (line != "" || blank) {
			b.WriteString(indent)
		}
		b.WriteString(line)
	}
	return like(v, b.String()), nil
}

func filterTruncate(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	limit, err := intArg(a[0], 255)
	if err != nil {
		return nil, err
	}
	end, err := textArg(a[2], "...")
	if err != nil {
		return nil, err
	}
	if a[3] == nil {
		a[3] = missing
	}
	leeway, err := intArg(a[3], 5)
	if err != nil {
		return nil, err
	}
	endLen := int64(utf8.RuneCountInString(end))
	if limit < endLen || leeway < 0 {
		return nil, typeErrorf("truncate: length must be at least %d and leeway not negative", endLen)
	}
	n, ok := length(v)
	if ok && int64(n) <= min(limit, 1<<40)+min(leeway, 1<<40) {
		return v, nil // whatever has a length, also undefined
	}
	s, err := textArg(v, "")
	if err != nil {
		return nil, err
	}
	s = s[:runeOffset(s, int(limit-endLen), n)]
	if a[1] == missing || !truth(a[1]) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	return made(st, v, s+end)
}

func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

func filterWordCount(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	_, s, err := softText(st, v)
	if err != nil {
		return nil, err
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return !isWordRune(r) })
	return int64(len(words)), st.growList(len(words))
}

func filterFormat(st *state, v Value, c *args) (Value, error) {
	v, s, err := softText(st, v)
	if err != nil {
		return nil, err
	}
	if len(c.names) > 0 {
		if len(c.pos) > 0 {
			return nil, failf(KindRuntime, "can't handle positional and keyword arguments at the same time")
		}
		return formatPercent(st, v, s, c.named())
	}
	return formatPercent(st, v, s, &Tuple{Items: c.pos})
}

// filterXMLAttr writes a mapping as attributes. It omits values that are None or undefined.
func filterXMLAttr(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "autospace")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, typeErrorf("xmlattr needs a mapping, not %s", typeName(v))
	}
	var parts []string
	for i, k := range d.keys {
		value := d.vals[i]
		if _, isUndef := value.(*undefined); isUndef || value == nil {
			continue
		}
		key, err := textArg(k, "")
		if err != nil {
			return nil, err
		}
		if strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			return nil, typeErrorf("Invalid character in attribute name: %s", quote(key))
		}
		s, err := str(st, value)
		if err != nil {
			return nil, err
		}
		if _, isMarkup := value.(markup); !isMarkup {
			s = escapeHTML(s)
		}
		parts = append(parts, escapeHTML(key)+`="`+s+`"`)
	}
	out, err := joinTexts(st, parts, " ")
	if err == nil && out != "" && (a[0] == missing || truth(a[0])) {
		out = " " + out
	}
	return st.rendered(out), err
}

const hexDigits = "0123456789ABCDEF"

// quoteURL percent-encodes s, in a query also the slash, with + for spaces.
func quoteURL(s string, query bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("_.-~", c) >= 0 || c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// filterURLEncode quotes a text, or writes pairs as a query.
func filterURLEncode(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	if _, isText := text(v); isText || !iterable(v) {
		s, err := str(st, v)
		if err != nil {
			return nil, err
		}
		return made(st, "", quoteURL(s, false))
	}
	if d, ok := v.(*Dict); ok {
		v = &view{d, "items"}
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		pair, err := unpack(st, item, 2)
		if err != nil {
			return nil, err
		}
		k, err := str(st, pair[0])
		if err != nil {
			return nil, err
		}
		value, err := str(st, pair[1])
		if err != nil {
			return nil, err
		}
		parts[i] = quoteURL(k, true) + "=" + quoteURL(value, true)
	}
	return joinTexts(st, parts, "&")
}
