package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filterWordWrap wraps every line of a text on its own, as Python's textwrap does:
// at white space, after hyphens inside words, and before and after dashes.
func filterWordWrap(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "width", "break_long_words", "wrapstring", "break_on_hyphens")
	if err != nil {
		return nil, err
	}
	s, err := textArg(v, "")
	if err != nil {
		return nil, err
	}
	width, err := intArg(a[0], 79)
	if err != nil {
		return nil, err
	}
	if a[2] == nil {
		a[2] = missing
	}
	newline, err := textArg(a[2], "\n")
	if err != nil {
		return nil, err
	}
	w := wrapper{
		width:       int(min(width, 1<<30)),
		breakLong:   a[1] == missing || truth(a[1]),
		breakHyphen: a[3] == missing || truth(a[3]),
	}
	if width <= 0 && s != "" {
		return nil, typeErrorf("invalid width %d (must be > 0)", width)
	}
	if err := st.growList(8 * len(s)); err != nil {
		return nil, err
	}
	var paragraphs []string
	for _, line := range splitLines(s, false) {
		lines, err := joinTexts(st, w.wrap(line), newline)
		if err != nil {
			return nil, err
		}
		paragraphs = append(paragraphs, lines)
	}
	return joinTexts(st, paragraphs, newline)
}

type wrapper struct {
	width       int
	breakLong   bool
	breakHyphen bool
}

func isBlank(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

// wrap fills lines with as many chunks as fit; white space at their ends is lost.
func (w *wrapper) wrap(line string) []string {
	chunks := w.chunks([]rune(line))
	var lines []string
	for i := 0; i < len(chunks); {
		if len(lines) > 0 && allBlank(chunks[i]) {
			if i++; i == len(chunks) {
				break
			}
		}
		var row [][]rune
		size := 0
		for i < len(chunks) && size+len(chunks[i]) <= w.width {
			row = append(row, chunks[i])
			size += len(chunks[i])
			i++
		}
		if i < len(chunks) && len(chunks[i]) > w.width {
			switch {
			case w.breakLong:
				end := w.cut(chunks[i], w.width-size)
				row = append(row, chunks[i][:end])
				chunks[i] = chunks[i][end:]
			case len(row) == 0:
				row = append(row, chunks[i])
				i++
			}
		}
		if n := len(row); n > 0 && allBlank(row[n-1]) {
			row = row[:n-1]
		}
		if len(row) > 0 {
			lines = append(lines, string(slices.Concat(row...)))
		}
	}
	return lines
}

func allBlank(chunk []rune) bool {
	return !slices.ContainsFunc(chunk, func(r rune) bool { return !IsSpace(r) })
}

// cut returns where a chunk that is too long is broken: at the room left, or after a
// hyphen before that.
func (w *wrapper) cut(chunk []rune, room int) int {
	if w.breakHyphen && len(chunk) > room {
		for i := room - 1; i > 0; i-- {
			if chunk[i] == '-' {
				if slices.ContainsFunc(chunk[:i], func(r rune) bool { return r != '-' }) {
					return i + 1
				}
				break
			}
		}
	}
	return room
}

// chunks cuts a line into unbreakable pieces.
func (w *wrapper) chunks(s []rune) [][]rune {
	var out [][]rune
	for i := 0; i < len(s); {
		end := i + 1
		switch {
		case isBlank(s[i]):
			for end < len(s) && isBlank(s[end]) {
				end++
			}
		case !w.breakHyphen:
			for end < len(s) && !isBlank(s[end]) {
				end++
			}
		case dashAt(s, i) > 0:
			end = dashAt(s, i)
		default:
			end = wordEnd(s, i)
		}
		out = append(out, s[i:end])
		i = end
	}
	return out
}

// dashAt returns the end of a dash of several hyphens between words at i, or 0.
func dashAt(s []rune, i int) int {
	if i == 0 || !isWordRune(s[i-1]) && !strings.ContainsRune(`!"'&.,?`, s[i-1]) {
		return 0
	}
	end := i
	for end < len(s) && s[end] == '-' {
		end++
	}
	if end-i < 2 || end == len(s) || !isWordRune(s[end]) {
		return 0
	}
	return end
}

// wordEnd returns where the word that begins at i may be broken first.
func wordEnd(s []rune, i int) int {
	letter := func(k int) bool {
		return k >= 0 && k < len(s) && isWordRune(s[k]) && !unicode.IsDigit(s[k])
	}
	for j := i + 1; j < len(s); j++ {
		if isBlank(s[j]) || dashAt(s, j) > 0 {
			return j
		}
		if s[j] != '-' {
			continue
		}
		before := letter(j-1) && (letter(j-2) || j >= 3 && s[j-2] == '-' && letter(j-3))
		after := letter(j+1) && (letter(j+2) || j+2 < len(s) && s[j+2] == '-' && letter(j+3))
		if before && after {
			return j + 1
		}
	}
	return len(s)
}

// filterPPrint returns Python's pprint.pformat: 80 columns, keys sorted.
func filterPPrint(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	v, err := sortedKeys(st, v, 0)
	if err != nil {
		return nil, err
	}
	p := prettyPrinter{st: st}
	if err := p.value(v, 0, 0, 1); err != nil {
		return nil, err
	}
	return made(st, "", p.b.String())
}

// sortedKeys returns v with all its dicts in the order of their keys; a dict whose keys
// have no order keeps its own.
func sortedKeys(st *state, v Value, depth int) (Value, error) {
	if depth > maxNesting {
		return nil, failf(KindLimit, "maximum recursion depth exceeded while printing")
	}
	items, _, isSequence := bothSequences(v, v)
	d, isDict := v.(*Dict)
	switch {
	case isSequence:
		out := make([]Value, len(items))
		for i, item := range items {
			var err error
			if out[i], err = sortedKeys(st, item, depth+1); err != nil {
				return nil, err
			}
		}
		if _, ok := v.(*Tuple); ok {
			return &Tuple{Items: out}, st.growList(len(out))
		}
		return &List{Items: out}, st.growList(len(out))
	case isDict:
		keys, order := slices.Clone(d.keys), slices.Clone(d.keys)
		if sortBy(st, keys, order, false) != nil {
			keys = d.keys
		}
		out := &Dict{}
		for _, k := range keys {
			item, _ := d.get(k)
			item, err := sortedKeys(st, item, depth+1)
			if err != nil {
				return nil, err
			}
			out.set(k, item)
		}
		return out, st.growList(3 * out.Len())
	}
	return v, nil
}

const prettyWidth = 80

type prettyPrinter struct {
	st *state
	b  strings.Builder
}

// value writes v at column indent, leaving room for allowance characters behind
// it: on one line if it fits, else one item a line.
func (p *prettyPrinter) value(v Value, indent, allowance, level int) error {
	flat, err := repr(p.st, v)
	if err != nil {
		return err
	}
	if utf8.RuneCountInString(flat) <= prettyWidth-indent-allowance {
		p.b.WriteString(flat)
		return nil
	}
	switch v := v.(type) {
	case *Dict:
		return p.dict(v, indent, allowance+1, level)
	case *List:
		return p.items("[", v.Items, "]", indent, allowance, level)
	case *Tuple:
		if len(v.Items) == 1 {
			return p.items("(", v.Items, ",)", indent, allowance, level)
		}
		return p.items("(", v.Items, ")", indent, allowance, level)
	case string:
		p.text(v, indent, allowance, level)
		return nil
	}
	p.b.WriteString(flat)
	return nil
}

func (p *prettyPrinter) newline(indent int) { p.b.WriteString("\n" + strings.Repeat(" ", indent)) }

func (p *prettyPrinter) dict(d *Dict, indent, allowance, level int) error {
	p.b.WriteByte('{')
	for i, k := range d.keys {
		room := 1
		if i > 0 {
			p.b.WriteByte(',')
			p.newline(indent + 1)
		}
		if i == len(d.keys)-1 {
			room = allowance
		}
		key, err := repr(p.st, k)
		if err != nil {
			return err
		}
		p.b.WriteString(key + ": ")
		if err := p.value(d.vals[i], indent+1+utf8.RuneCountInString(key)+2, room, level+1); err != nil {
			return err
		}
	}
	p.b.WriteByte('}')
	return nil
}

func (p *prettyPrinter) items(open string, items []Value, end string, indent, allowance, level int) error {
	p.b.WriteString(open)
	for i, item := range items {
		room := 1
		if i > 0 {
			p.b.WriteByte(',')
			p.newline(indent + 1)
		}
		if i == len(items)-1 {
			room = allowance + len(end)
		}
		if err := p.value(item, indent+1, room, level+1); err != nil {
			return err
		}
	}
	p.b.WriteString(end)
	return nil
}

// text writes a long string as several literals, broken after lines and words.
func (p *prettyPrinter) text(s string, indent, allowance, level int) {
	if level == 1 {
		indent++
		allowance++
	}
	width := prettyWidth - indent
	size := func(s string) int { return utf8.RuneCountInString(quote(s)) }
	var chunks []string
	lines := splitLines(s, true)
	for i, line := range lines {
		room := 0
		if i == len(lines)-1 {
			room = allowance
		}
		if size(line) <= width-room {
			chunks = append(chunks, quote(line))
			continue
		}
		parts := wordsWithSpace(line)
		current := ""
		for j, part := range parts {
			limit := width
			if j == len(parts)-1 {
				limit -= room
			}
			if size(current+part) > limit {
				if current != "" {
					chunks = append(chunks, quote(current))
				}
				current = part
			} else {
				current += part
			}
		}
		if current != "" {
			chunks = append(chunks, quote(current))
		}
	}
	grouped := level == 1 && len(chunks) > 1
	if grouped {
		p.b.WriteByte('(')
	}
	for i, chunk := range chunks {
		if i > 0 {
			p.newline(indent)
		}
		p.b.WriteString(chunk)
	}
	if grouped {
		p.b.WriteByte(')')
	}
}

// wordsWithSpace cuts s before every word; each piece keeps the space behind it.
func wordsWithSpace(s string) []string {
	var parts []string
	for s != "" {
		end := strings.IndexFunc(s, IsSpace)
		if end < 0 {
			return append(parts, s)
		}
		next := strings.IndexFunc(s[end:], func(r rune) bool { return !IsSpace(r) })
		if next < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:end+next])
		s = s[end+next:]
	}
	return parts
}
