package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A sentinel is a word inserted at the beginning or the end of a text in a message. It survives
// what templates do to texts: trimming, splitting at thoughts, escaping as JSON. Where it appears in
// the rendering, there the text is. A sentinel is the conversation's word, B or E, and the numbers
// of the message and of the text in it.
type sentinel struct {
	at            int // in the rendering without sentinels
	begin         bool
	message, text int
}

const sentinelDigits = 5 // of each number

// sentinels inserts and removes the sentinels of one conversation.
type sentinels struct{ word string }

// newSentinels chooses a word that text does not contain.
func newSentinels(text string) sentinels {
	for n := 0; ; n++ {
		if word := "Qz" + strconv.Itoa(n) + "Heft"; !strings.Contains(text, word) {
			return sentinels{word}
		}
	}
}

func (s sentinels) write(begin bool, message, text int) string {
	kind := "E"
	if begin {
		kind = "B"
	}
	return fmt.Sprintf("%s%s%0*d%0*d", s.word, kind, sentinelDigits, message, sentinelDigits, text)
}

// strip removes the sentinels from a rendering and returns them in order.
func (s sentinels) strip(rendered string) (string, []sentinel) {
	var clean strings.Builder
	var found []sentinel
	for {
		i := strings.Index(rendered, s.word)
		end := i + len(s.word) + 1 + 2*sentinelDigits
		if i < 0 || end > len(rendered) {
			clean.WriteString(rendered)
			return clean.String(), found
		}
		clean.WriteString(rendered[:i])
		numbers := rendered[end-2*sentinelDigits : end]
		message, _ := strconv.Atoi(numbers[:sentinelDigits])
		text, _ := strconv.Atoi(numbers[sentinelDigits:])
		found = append(found, sentinel{clean.Len(), rendered[i+len(s.word)] == 'B', message, text})
		rendered = rendered[end:]
	}
}

// thoughts are the marks at which templates split an answer.
var thoughts = regexp.MustCompile(`(?i)</?\|?\w*think\w*\|?>|\[/?THINK\]`)

// mark inserts sentinels into the texts of a message that pick wants, within the white space around
// them. It keeps the order of keys.
func (s sentinels) mark(raw json.RawMessage, message int, pick func(text int, begin bool) bool) (json.RawMessage, error) {
	text := 0
	piece := func(p string) string {
		core := strings.TrimSpace(p)
		if core == "" {
			return p
		}
		lead, tail, _ := strings.Cut(p, core)
		if pick(text, true) {
			core = s.write(true, message, text) + core
		}
		if pick(text, false) {
			core += s.write(false, message, text)
		}
		text++
		return lead + core + tail
	}
	var out bytes.Buffer
	w := rewriter{dec: json.NewDecoder(bytes.NewReader(raw)), out: &out, change: func(whole string) string {
		var b strings.Builder
		from := 0
		for _, at := range thoughts.FindAllStringIndex(whole, -1) {
			b.WriteString(piece(whole[from:at[0]]))
			b.WriteString(whole[at[0]:at[1]])
			from = at[1]
		}
		b.WriteString(piece(whole[from:]))
		return b.String()
	}}
	w.dec.UseNumber()
	if err := w.value(nil); err != nil {
		return nil, fmt.Errorf("data: message %d: %w", message+1, err)
	}
	return out.Bytes(), nil
}

// rewriter copies a JSON text and changes the strings that a message says.
type rewriter struct {
	dec    *json.Decoder
	out    *bytes.Buffer
	change func(string) string
}

func (w *rewriter) value(path []string) error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		return w.list(v, path)
	case string:
		if says(path) {
			v = w.change(v)
		}
		return w.write(v)
	}
	return w.write(token)
}

// list copies an object or an array, whose first delimiter is read.
func (w *rewriter) list(open json.Delim, path []string) error {
	w.out.WriteRune(rune(open))
	for n := 0; w.dec.More(); n++ {
		if n > 0 {
			w.out.WriteByte(',')
		}
		key := "[]"
		if open == '{' {
			token, err := w.dec.Token()
			if err != nil {
				return err
			}
			key = token.(string)
			if err := w.write(key); err != nil {
				return err
			}
			w.out.WriteByte(':')
		}
		if err := w.value(append(path, key)); err != nil {
			return err
		}
	}
	end, err := w.dec.Token()
	if err == nil {
		w.out.WriteRune(rune(end.(json.Delim)))
	}
	return err
}

func (w *rewriter) write(v any) error {
	b, err := json.Marshal(v)
	w.out.Write(b)
	return err
}

// says reports whether a string of a message is something that it says: no role, id or type, and no
// arguments that are JSON themselves.
func says(path []string) bool {
	if len(path) == 0 {
		return false
	}
	switch path[len(path)-1] {
	case "role", "id", "type", "tool_call_id":
		return false
	case "name":
		return len(path) > 1
	case "arguments":
		return path[0] != "tool_calls"
	}
	return true
}

// bySentinels locates answers by sentinels in their texts. An answer begins after the header that
// the template writes for one, and ends with what the template writes after the last message of a
// conversation.
func (c *chatText) bySentinels(last bool) ([]answerRange, error) {
	l := &locator{chatText: c, s: newSentinels(c.full + string(bytes.Join(rawBytes(c.messages), nil)))}
	l.locate(last)
	var ranges []answerRange
	bound := 0
	for i := range c.messages {
		if !l.wanted(i, last) {
			continue
		}
		p, err := l.place(i)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue // the template leaves the message out
		}
		var r answerRange
		r.from, r.partial = l.start(i, max(bound, l.before(p.texts[0].at)), p.texts[0].at)
		r.text, r.to = l.end(i, p)
		ranges = append(ranges, r)
		bound = r.to
	}
	return ranges, nil
}

func rawBytes(messages []json.RawMessage) [][]byte {
	all := make([][]byte, len(messages))
	for i, m := range messages {
		all[i] = m
	}
	return all
}

// picker says which sentinels to insert.
type picker func(message, text int, begin bool) bool

// locator finds answers by their sentinels.
type locator struct {
	*chatText
	s      sentinels
	found  []sentinel // of all answers and the ends of other messages, if the rendering stays the same
	pick   picker
	header []string // those that the template writes before an answer, once known
}

// located is where the texts of a message begin and end, in order, and how its sentinels were chosen.
type located struct {
	texts []sentinel
	pick  picker
}

func (l *locator) wanted(i int, last bool) bool {
	if l.roles[i] != "assistant" {
		return false
	}
	for j := i + 1; last && j < len(l.roles); j++ {
		if l.roles[j] == "assistant" {
			return false
		}
	}
	return true
}

// render renders the first n messages with sentinels, and removes them.
func (l *locator) render(n int, pick picker) (string, []sentinel, error) {
	messages := make([]json.RawMessage, n)
	for i := range messages {
		var err error
		messages[i], err = l.s.mark(l.messages[i], i, func(text int, begin bool) bool { return pick(i, text, begin) })
		if err != nil {
			return "", nil, err
		}
	}
	rendered, err := l.t.Render(messages, l.tools, false)
	if err != nil {
		return "", nil, err
	}
	clean, found := l.s.strip(rendered)
	return clean, found, nil
}

// locate tries sentinels in all answers, and at the ends of other messages. It keeps them if the
// template writes the same around them.
func (l *locator) locate(last bool) {
	answers := func(i, _ int, _ bool) bool { return l.wanted(i, last) }
	all := func(i, text int, begin bool) bool {
		return answers(i, text, begin) || l.roles[i] != "assistant" && !begin
	}
	for _, pick := range []picker{all, answers} {
		if clean, found, err := l.render(len(l.messages), pick); err == nil && clean == l.full {
			l.found, l.pick = found, pick
			return
		}
	}
}

// before returns the end of the last text of another message before a place, or 0.
func (l *locator) before(at int) int {
	end := 0
	for _, s := range l.found {
		if s.at <= at && l.roles[s.message] != "assistant" {
			end = max(end, s.at)
		}
	}
	return end
}

// place finds the texts of message i. Templates look into texts, so with a sentinel they may write
// something else; then fewer sentinels are tried. It returns nil if the message is not rendered.
func (l *locator) place(i int) (*located, error) {
	if l.pick != nil {
		return placeOf(l.found, i, l.pick), nil
	}
	of := func(f func(text int, begin bool) bool) picker {
		return func(m, text int, begin bool) bool { return m == i && f(text, begin) }
	}
	picks := []picker{
		of(func(int, bool) bool { return true }),
		of(func(_ int, begin bool) bool { return !begin }),
		of(func(_ int, begin bool) bool { return begin }),
	}
	for text := range 6 { // one alone
		picks = append(picks, of(func(t int, begin bool) bool { return t == text && !begin }), of(func(t int, begin bool) bool { return t == text && begin }))
	}
	for _, pick := range picks {
		clean, found, err := l.render(len(l.messages), pick)
		if err != nil || clean != l.full {
			continue
		}
		if p := placeOf(found, i, pick); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w (message %d)", ErrUnstable, i+1)
}

func placeOf(found []sentinel, message int, pick picker) *located {
	p := &located{pick: pick}
	for _, s := range found {
		if s.message == message {
			p.texts = append(p.texts, s)
		}
	}
	if len(p.texts) == 0 {
		return nil
	}
	return p
}

// start returns where the answer i begins whose first text is at first: after the header of an
// answer, of which the template may write only the beginning, or after the messages before.
func (l *locator) start(i, bound, first int) (at int, partial bool) {
	region := l.full[bound:first]
	for _, header := range l.headers(i) {
		for n := len(header); n > 0; n-- {
			part := header[:n]
			if strings.IndexFunc(part, isWord) < 0 {
				break
			}
			if at := strings.LastIndex(region, part); at >= 0 {
				return bound + at + n, n < len(header)
			}
		}
	}
	if i > 0 {
		rest, err := l.t.Render(l.messages[:i], l.tools, false)
		if err == nil && len(rest) >= bound && len(rest) <= first && strings.HasPrefix(l.full, rest) {
			return len(rest), false
		}
	}
	return first, false
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// headers returns what the template writes before an answer, first that of message i.
func (l *locator) headers(i int) []string {
	own := l.headerAfter(i)
	if own != "" {
		l.header = []string{own}
		return l.header
	}
	for n := len(l.messages); n > 0 && l.header == nil; n-- {
		if h := l.headerAfter(n); h != "" {
			l.header = []string{h}
		}
	}
	return l.header
}

// headerAfter returns the header of an answer after the first n messages, or "".
func (l *locator) headerAfter(n int) string {
	if n == 0 {
		return ""
	}
	rest, err := l.t.Render(l.messages[:n], l.tools, false)
	if err != nil {
		return ""
	}
	header, err := l.t.Render(l.messages[:n], l.tools, true)
	if err != nil {
		return ""
	}
	return header[common(header, rest):]
}

// end returns the ends of answer i: of its texts, and of what the template writes after them when
// it is the last message, as far as it writes the same here. Texts that appear only when there are
// more messages, such as a function's name above its result, do not count.
func (l *locator) end(i int, p *located) (text, to int) {
	last := p.texts[len(p.texts)-1].at
	if i == len(l.messages)-1 {
		return last, len(l.full)
	}
	clean, found, err := l.render(i+1, p.pick)
	if err != nil {
		return last, last
	}
	alone := placeOf(found, i, p.pick)
	if alone == nil {
		return last, last
	}
	for n := len(alone.texts) - 1; n >= 0; n-- {
		if at, ok := p.at(alone.texts[:n+1]); ok {
			return at, at + common(clean[alone.texts[n].at:], l.full[at:])
		}
	}
	return last, last
}

// at returns the place of the last of texts: the first, second, … time that p has it, as texts have.
func (p *located) at(texts []sentinel) (int, bool) {
	want := texts[len(texts)-1]
	times := 0
	for _, t := range texts {
		if t.same(want) {
			times++
		}
	}
	for _, t := range p.texts {
		if t.same(want) {
			if times--; times == 0 {
				return t.at, true
			}
		}
	}
	return 0, false
}

// same reports whether two sentinels mark the same text.
func (s sentinel) same(t sentinel) bool {
	return s.begin == t.begin && s.message == t.message && s.text == t.text
}
