package toolcall

import (
	"strings"

	"github.com/heftai/heft/internal/chat"
)

const (
	maxSpace = 32       // bytes of white space before a marker that are removed with it
	maxHeld  = 64 << 10 // bytes of markup that may wait to become a call
)

// Options are the options of parsing an answer.
type Options struct {
	// Prompt is the text before the answer. Its end shows whether the answer starts inside
	// reasoning, because many templates open the reasoning themselves.
	Prompt string
	// InReasoning means that the answer continues the reasoning of the prompt's last
	// message.
	InReasoning bool
	// Tools is the array of tools that the model was given. Without tools the parser does
	// not look for calls.
	Tools chat.Value
}

// A Parser parses one answer. It is for use by one goroutine at a time.
type Parser struct {
	family *Family
	tools  toolbox
	events []Event
	pos    int  // offset of the next byte
	index  int  // of the next call
	colon  bool // the prompt ends in a colon: a space follows it

	// The state in plain text:
	kind    Kind
	marks   *markers
	pending string // the end of the text, which may be the start of a marker
	source  string // the piece that is being parsed, after the text that was pending before it
	skip    bool   // white space follows a marker
	fresh   bool   // the answer has no text yet
	blank   bool   // the reasoning has no text yet
	final   bool   // the answer has ended

	markup
}

// NewParser returns a parser for one answer.
func (f *Family) NewParser(o Options) *Parser {
	p := &Parser{family: f, tools: newToolbox(o.Tools), fresh: true}
	p.answer()
	prompt := strings.TrimRight(o.Prompt, " \t\r\n")
	if o.InReasoning && len(f.thinks) > 0 {
		p.think(0)
		return p
	}
	for i, t := range f.thinks {
		if strings.HasSuffix(prompt, t.open) {
			p.think(i)
			return p
		}
	}
	for _, seed := range f.spec.seeds {
		if strings.HasSuffix(prompt, seed) {
			p.pos = -len(seed)
			p.run(seed)
			return p
		}
	}
	p.colon = strings.HasSuffix(o.Prompt, ":")
	return p
}

// answer prepares p for the final answer.
func (p *Parser) answer() {
	p.kind, p.marks = Content, p.family.content
	if len(p.tools) == 0 {
		p.marks = p.family.answer
	}
}

// think prepares p for reasoning of kind i.
func (p *Parser) think(i int) {
	p.kind, p.marks, p.skip, p.blank = Reasoning, p.family.thought[i], true, true
}

// Feed parses the next piece of the answer and returns the events that are certain so far.
// They are valid until the next call.
func (p *Parser) Feed(delta string) []Event {
	p.events = p.events[:0]
	p.run(delta)
	p.flush()
	return p.events
}

// Finish ends the answer and returns the events that Feed held back. Do not use the parser
// afterwards.
func (p *Parser) Finish() []Event {
	p.events = p.events[:0]
	p.final = true
	pending := p.pending
	p.pending = ""
	p.run(pending)
	if p.at == inArguments && p.form.body == bodyTags && p.tags.waits() {
		p.run("\n")
	}
	if p.at == inText {
		p.say(p.kind, p.pending, p.pos)
	} else {
		p.cutOff()
	}
	return p.events
}

func (p *Parser) run(s string) {
	p.source = s
	for s != "" {
		if p.at == inText {
			s = p.text(s)
			continue
		}
		if p.step(s[0]) {
			s = s[1:]
			p.pos++
			continue
		}
		// Text to read again is before s, unless it came in an earlier piece.
		if n := len(p.source) - len(s) - len(p.pending); n >= 0 {
			s = p.source[n:]
			p.pending = ""
		} else if p.at != inText {
			s = p.pending + s
			p.source, p.pending = s, ""
		}
	}
	p.source = ""
}

// text parses plain text up to the next marker and returns the rest.
func (p *Parser) text(s string) string {
	s = p.join(s)
	if p.skip || p.colon {
		n := p.leading(s)
		s = s[n:]
		p.pos += n
		if s == "" {
			return ""
		}
		p.skip, p.colon = false, false
	}
	if p.fresh && p.kind == Content {
		if i := len(s) - len(strings.TrimLeft(s, " \t\r\n")); i < len(s) {
			if form := p.peek(s[i]); form != nil {
				return p.enter(s, i, &marker{act: actSection, form: form})
			}
		}
	}
	for i := p.marks.next(s, 0); i < len(s); i = p.marks.next(s, i+1) {
		m, partial := p.marks.match(s[i:], p.final)
		if m != nil && (m.act != actStray || p.stray(s[:i])) {
			return p.enter(s, i, m)
		}
		if partial {
			p.hold(s, i-spaceBefore(s, i))
			return ""
		}
	}
	p.hold(s, len(s)-spaceBefore(s, len(s)))
	return ""
}

// stray reports whether a marker of reasoning after the text before repeats the parser's current
// state. Models may repeat the marker at the end of their prompt.
func (p *Parser) stray(before string) bool {
	fresh := p.fresh
	if p.kind == Reasoning {
		fresh = p.blank
	}
	return fresh && strings.TrimLeft(before, " \t\r\n") == ""
}

// join prepends the held text to s, or emits it if s shows that it is text.
func (p *Parser) join(s string) string {
	pending := p.pending
	p.pending = ""
	if pending != "" && !isSpace(s[0]) && !p.marks.first[s[0]] && !p.fresh && strings.TrimLeft(pending, " \t\r\n") == "" {
		p.say(p.kind, pending, p.pos)
		p.pos += len(pending)
		return s
	}
	if pending != "" {
		s = pending + s
		p.source = s
	}
	return s
}

// leading counts the bytes of s that belong to the preceding text.
func (p *Parser) leading(s string) int {
	if p.skip {
		return len(s) - len(strings.TrimLeft(s, " \t\r\n"))
	}
	if p.pos == 0 && s[0] == ' ' {
		return 1
	}
	return 0
}

// peek returns the form that a message may start with at byte c.
func (p *Parser) peek(c byte) *form {
	if len(p.tools) == 0 {
		return nil
	}
	for i := range p.family.spec.forms {
		if f := &p.family.spec.forms[i]; strings.IndexByte(f.peek, c) >= 0 {
			return f
		}
	}
	return nil
}

// spaceBefore counts the white space before s[i], up to maxSpace.
func spaceBefore(s string, i int) int {
	n := 0
	for n < maxSpace && n < i && isSpace(s[i-n-1]) {
		n++
	}
	return n
}

// hold emits s up to i and holds the rest.
func (p *Parser) hold(s string, i int) {
	p.say(p.kind, s[:i], p.pos)
	p.pos += i
	p.pending = s[i:]
}

// enter emits s up to the marker at s[i], enters the state of the marker, and returns the rest.
func (p *Parser) enter(s string, i int, m *marker) string {
	space := spaceBefore(s, i)
	p.say(p.kind, s[:i-space], p.pos)
	if m.act == actImplied {
		p.answer()
		p.pos += i - space
		return s[i-space:]
	}
	p.pos += i + len(m.text)
	rest := s[i+len(m.text):]
	p.skip = true
	switch m.act {
	case actThink:
		p.think(m.think)
	case actThought:
		p.answer()
	case actSection, actBareCall:
		p.skip = false
		p.begin(m, s[i-space:i])
	}
	return rest
}

// say emits text of the answer that starts at offset pos. Text before offset 0 belongs to the
// prompt.
func (p *Parser) say(kind Kind, text string, pos int) {
	if pos < 0 {
		text = text[min(-pos, len(text)):]
	}
	if text == "" {
		return
	}
	blank := strings.TrimLeft(text, " \t\r\n") == ""
	if kind == Content {
		p.fresh = p.fresh && blank
	} else {
		p.blank = p.blank && blank
	}
	p.events = append(p.events, Event{Kind: kind, Text: text})
}
