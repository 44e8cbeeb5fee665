package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the type of a token; an operator's is its own spelling.
type tokenKind string

const (
	tokEOF      tokenKind = "end of template"
	tokData     tokenKind = "template data"
	tokVarBegin tokenKind = "begin of print statement"
	tokVarEnd   tokenKind = "end of print statement"
	tokBlkBegin tokenKind = "begin of statement block"
	tokBlkEnd   tokenKind = "end of statement block"
	tokName     tokenKind = "name"
	tokString   tokenKind = "string"
	tokInt      tokenKind = "integer"
	tokFloat    tokenKind = "float"
)

// operators, the longer ones before their prefixes.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",
	"[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// token is a token of the template. Text is the data, name or unescaped string;
// value is a number's.
type token struct {
	kind  tokenKind
	text  string
	value Value
	line  int
}

func (t token) String() string {
	if t.kind == tokName {
		return "'" + t.text + "'"
	}
	return "'" + string(t.kind) + "'"
}

// lexer cuts a template into tokens. lineStarting says that the last token ended
// with a newline, which lstrip_blocks wants to know.
type lexer struct {
	src          string
	pos          int
	line         int
	lineStarting bool
	brackets     []byte
	tokens       []token
}

// tokenize splits the whole template. Newlines become \n and one at the very end
// is dropped, as Jinja does.
func tokenize(src string) ([]token, error) {
	src = strings.ToValidUTF8(src, "\ufffd")
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	lx := &lexer{src: src, line: 1, lineStarting: true}
	for lx.pos < len(lx.src) {
		if err := lx.root(); err != nil {
			return nil, err
		}
	}
	lx.add(tokEOF, "", nil)
	return lx.tokens, nil
}

func (lx *lexer) fail(format string, args ...any) error {
	return atLine(failf(KindSyntax, format, args...), lx.line)
}

func (lx *lexer) add(kind tokenKind, text string, v Value) {
	lx.tokens = append(lx.tokens, token{kind, text, v, lx.line})
}

// advance moves on by n bytes and keeps the line.
func (lx *lexer) advance(n int) {
	s := lx.src[lx.pos : lx.pos+n]
	lx.line += strings.Count(s, "\n")
	lx.pos += n
	if n > 0 {
		lx.lineStarting = s[n-1] == '\n'
	}
}

// root reads text up to the next tag, and that tag.
func (lx *lexer) root() error {
	rest := lx.src[lx.pos:]
	open := -1
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == '{' && (rest[i+1] == '%' || rest[i+1] == '{' || rest[i+1] == '#') {
			open = i
			break
		}
	}
	if open < 0 {
		lx.add(tokData, rest, nil)
		lx.advance(len(rest))
		return nil
	}
	sign := byte(0)
	if open+2 < len(rest) && (rest[open+2] == '-' || rest[open+2] == '+') {
		sign = rest[open+2]
	}
	kind := rest[open+1]
	if data := lx.strip(rest[:open], sign, kind == '{'); data != "" {
		lx.add(tokData, data, nil)
	}
	begin := open + 2
	if sign != 0 {
		begin++
	}
	if kind == '%' {
		if n := rawBegin(rest[begin:]); n > 0 {
			lx.advance(begin + n)
			return lx.raw()
		}
	}
	lx.advance(begin)
	switch kind {
	case '#':
		return lx.comment()
	case '{':
		lx.add(tokVarBegin, "", nil)
		return lx.inside(tokVarEnd, "}}")
	}
	lx.add(tokBlkBegin, "", nil)
	return lx.inside(tokBlkEnd, "%}")
}

// strip applies a tag's opening sign, or lstrip_blocks, to the text before it.
func (lx *lexer) strip(data string, sign byte, variable bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(data, IsSpace)
	}
	if sign == '+' || variable {
		return data
	}
	cut := strings.LastIndexByte(data, '\n') + 1
	if (cut > 0 || lx.lineStarting) && strings.TrimLeftFunc(data[cut:], IsSpace) == "" {
		return data[:cut]
	}
	return data
}

// rawBegin returns the length of `raw %}` at the start of s, 0 if it is not there.
func rawBegin(s string) int {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(s, IsSpace), "raw")
	if !ok {
		return 0
	}
	rest = strings.TrimLeftFunc(rest, IsSpace)
	if after, ok := strings.CutPrefix(rest, "-%}"); ok {
		return len(s) - len(strings.TrimLeftFunc(after, IsSpace))
	}
	if after, ok := strings.CutPrefix(rest, "%}"); ok {
		return len(s) - len(after)
	}
	return 0
}

// raw reads up to and with endraw.
func (lx *lexer) raw() error {
	rest := lx.src[lx.pos:]
	for from := 0; rest != ""; { // nothing at all to the end is fine with Jinja
		open := strings.Index(rest[from:], "{%")
		if open < 0 {
			return lx.fail("Missing end of raw directive")
		}
		open += from
		from = open + 2
		tag, sign := rest[from:], byte(0)
		if tag != "" && (tag[0] == '-' || tag[0] == '+') {
			sign, tag = tag[0], tag[1:]
		}
		tag, ok := strings.CutPrefix(strings.TrimLeftFunc(tag, IsSpace), "endraw")
		if !ok {
			continue
		}
		tag = strings.TrimLeftFunc(tag, IsSpace)
		n := endTag(tag, "%}")
		if n == 0 {
			continue
		}
		if data := lx.strip(rest[:open], sign, false); data != "" {
			lx.add(tokData, data, nil)
		}
		lx.advance(len(rest) - len(tag) + n)
		return nil
	}
	return nil
}

// endTag returns the length of a closing tag at the start of s with its sign and the
// white space or newline it swallows, 0 if there is none. Blocks and comments
// swallow one newline, `+` keeps it, `-` swallows all white space.
func endTag(s, end string) int {
	if after, ok := strings.CutPrefix(s, "-"+end); ok {
		return len(s) - len(strings.TrimLeftFunc(after, IsSpace))
	}
	if end == "}}" {
		if strings.HasPrefix(s, end) {
			return len(end)
		}
		return 0
	}
	if strings.HasPrefix(s, "+"+end) {
		return 1 + len(end)
	}
	if after, ok := strings.CutPrefix(s, end); ok {
		return len(s) - len(strings.TrimPrefix(after, "\n"))
	}
	return 0
}

func (lx *lexer) comment() error {
	rest := lx.src[lx.pos:]
	end := strings.Index(rest, "#}")
	if rest == "" {
		return nil
	}
	if end < 0 {
		return lx.fail("Missing end of comment tag")
	}
	if end > 0 && (rest[end-1] == '-' || rest[end-1] == '+') {
		end--
	}
	lx.advance(end + endTag(rest[end:], "#}"))
	return nil
}

// inside reads the tokens of a tag up to its end.
func (lx *lexer) inside(endKind tokenKind, end string) error {
	lx.brackets = lx.brackets[:0]
	for lx.pos < len(lx.src) {
		rest := lx.src[lx.pos:]
		if len(lx.brackets) == 0 {
			if n := endTag(rest, end); n > 0 {
				lx.add(endKind, "", nil)
				lx.advance(n)
				return nil
			}
		}
		if trimmed := strings.TrimLeftFunc(rest, IsSpace); len(trimmed) < len(rest) {
			lx.advance(len(rest) - len(trimmed))
			continue
		}
		if err := lx.expressionToken(rest); err != nil {
			return err
		}
	}
	return nil
}

func (lx *lexer) expressionToken(rest string) error {
	c := rest[0]
	switch {
	case c >= '0' && c <= '9':
		return lx.number(rest)
	case c == '\'' || c == '"':
		return lx.quoted(rest)
	}
	if n := wordLen(rest); n > 0 {
		word := rest[:n]
		if first, _ := utf8.DecodeRuneInString(word); first != '_' && !unicode.IsLetter(first) && !unicode.Is(unicode.Nl, first) {
			return lx.fail("Invalid character in identifier")
		}
		lx.add(tokName, word, nil)
		lx.advance(n)
		return nil
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			if err := lx.balance(op[0]); err != nil {
				return err
			}
			lx.add(tokenKind(op), op, nil)
			lx.advance(len(op))
			return nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return lx.fail("unexpected char %s", quote(string(r)))
}

func wordLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !unicode.Is(unicode.Nl, r) {
			return i
		}
	}
	return len(s)
}

func (lx *lexer) balance(c byte) error {
	switch c {
	case '(':
		lx.brackets = append(lx.brackets, ')')
	case '[':
		lx.brackets = append(lx.brackets, ']')
	case '{':
		lx.brackets = append(lx.brackets, '}')
	case ')', ']', '}':
		if len(lx.brackets) == 0 {
			return lx.fail("unexpected '%c'", c)
		}
		want := lx.brackets[len(lx.brackets)-1]
		lx.brackets = lx.brackets[:len(lx.brackets)-1]
		if want != c {
			return lx.fail("unexpected '%c', expected '%c'", c, want)
		}
	}
	return nil
}

func (lx *lexer) quoted(rest string) error {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			s, err := unescape(rest[1:i])
			if err != nil {
				return atLine(err, lx.line)
			}
			lx.add(tokString, s, nil)
			lx.advance(i + 1)
			return nil
		}
	}
	return lx.fail("unexpected char %s", quote(rest[:1]))
}

// IsSpace reports whether r is white space by Python's str.isspace.
func IsSpace(r rune) bool {
	return r >= 0x1c && r <= 0x1f || unicode.IsSpace(r)
}
