package toolcall

import (
	"bytes"
	"strings"
)

// place is the parser's position in a form.
type place uint8

const (
	inText place = iota
	inSection
	inHead
	beforeArguments
	inArguments
	inObject
	inNumber // after the close, before counted
	inTail   // after the arguments
)

type listState uint8

const (
	noList listState = iota
	openList
	closedList
)

// markup is the parser's state between the first marker of a form and the text that
// follows it.
type markup struct {
	at      place
	form    *form
	list    listState
	fence   bool // a code fence may now continue with "json"
	section int  // calls of the section
	parted  int  // calls of the section up to its last sep
	field   int  // of the head
	nameEnd int  // first byte of the field that no name may contain, or -1

	// raw is text that becomes content if it does not become a call. While held is set, it is all
	// text since the last event. It starts at offset rawPos.
	raw    []byte
	rawPos int
	held   bool

	lit       literal
	word      []byte // the field so far
	name, id  string
	ending    string // text that ends the call
	committed bool   // CallStart was emitted
	object    object
	value     value
	tags      tagReader
	out       []byte // arguments that were not emitted yet
}

// begin enters the form of a marker that follows space.
func (p *Parser) begin(m *marker, space string) {
	p.form = m.form
	p.at, p.list, p.section, p.parted, p.fence = inSection, noList, 0, 0, false
	p.raw = append(append(p.raw[:0], space...), m.text...)
	p.rawPos = p.pos - len(p.raw)
	p.held, p.committed = true, false
	p.lit.word, p.out = p.lit.word[:0], p.out[:0]
	p.id = ""
	if m.act == actBareCall && p.form.head != nil {
		p.beginCall()
	}
}

// step reads c. If it returns false, p's state has changed and c has to be read again.
func (p *Parser) step(c byte) bool {
	if p.held {
		if len(p.raw) == 0 {
			p.rawPos = p.pos
		}
		p.raw = append(p.raw, c)
		switch full := len(p.raw)+len(p.out) > maxHeld; {
		case full && p.committed:
			return p.contradict()
		case full:
			return p.fail()
		}
	}
	switch p.at {
	case inSection:
		return p.sectionByte(c)
	case inHead:
		return p.headByte(c)
	case beforeArguments:
		return p.gapByte(c)
	case inArguments:
		return p.argumentsByte(c)
	case inObject:
		return p.objectByte(c)
	case inNumber:
		return p.numberByte(c)
	}
	return p.tailByte(c)
}

// back removes a byte from the held text that is not consumed.
func (p *Parser) back() bool {
	if p.held {
		p.raw = p.raw[:len(p.raw)-1]
	}
	return false
}

// fail ends the markup before the byte that does not fit. The held text becomes content, unless it
// is white space after a call.
func (p *Parser) fail() bool {
	p.back()
	p.again()
	if n := unfinishedRune(p.raw); n > 0 {
		p.pending = string(p.raw[len(p.raw)-n:]) + p.pending
		p.pos -= n
		p.raw = p.raw[:len(p.raw)-n]
	}
	p.at = inText
	if p.section == 0 || len(bytes.TrimSpace(p.raw)) > 0 {
		p.say(Content, string(p.raw), p.rawPos)
	}
	p.raw, p.out = p.raw[:0], p.out[:0]
	p.fresh = false
	return false
}

// again returns text that started like a marker of the form to plain text, where it may start
// another marker.
func (p *Parser) again() {
	lit := &p.lit
	if p.at == inArguments && p.form.body == bodyTags {
		lit = &p.tags.lit
	}
	p.pending = string(lit.word)
	p.pos -= len(lit.word)
	p.raw = p.raw[:max(0, len(p.raw)-len(lit.word))]
	lit.word = lit.word[:0]
}

// leave ends the form after the current byte.
func (p *Parser) leave() {
	if p.section == 0 {
		p.say(Content, string(p.raw), p.rawPos) // a section without calls
	}
	p.at, p.skip, p.raw = inText, p.section > 0, p.raw[:0]
}

// sectionByte reads a byte between calls.
func (p *Parser) sectionByte(c byte) bool {
	f := p.form
	if len(p.lit.word) == 0 {
		lists := f.objects || f.body == bodyPython
		switch {
		case isSpace(c), f.counted != "" && '0' <= c && c <= '9':
			return true
		case c == '`' && f.objects && p.section == 0:
			p.fence = true
			return true
		case (c == ',' || c == ';') && p.section > 0 && p.list != closedList:
			return true
		case c == '[' && lists && p.list == noList && p.section == 0:
			p.list = openList
			return true
		case c == ']' && p.list == openList:
			p.list = closedList
			if p.section > 0 {
				p.raw = p.raw[:0] // the list was one, whether or not a close follows
			}
			if f.close == "" {
				p.leave()
			}
			return true
		case c == '{' && f.objects && p.list != closedList:
			p.at, p.id = inObject, ""
			p.object.start(f)
			return true
		}
	}
	which, ver := p.lit.push(c, f.call, f.close, p.fenceWord(), f.objectEnd(), f.counted, p.separator())
	switch {
	case ver == more:
		return true
	case ver == bad && len(p.lit.word) == 0 && f.call == "" && f.head != nil && p.list != closedList:
		p.beginCall()
		return p.back()
	case ver == bad:
		return p.fail()
	case which == 0 && f.head != nil:
		p.beginCall()
	case which == 1 && f.countedClose:
		p.at = inNumber
	case which == 1:
		p.leave()
	case which == 5:
		p.parted = p.section
	}
	p.fence = false
	return true
}

// separator is the text that may stand before the next call, if it has not come yet.
func (p *Parser) separator() string {
	if p.section > p.parted {
		return p.form.sep
	}
	return ""
}

// numberByte takes a byte of the number in a closing marker. Which number it is does not matter.
func (p *Parser) numberByte(c byte) bool {
	if len(p.lit.word) == 0 && (isSpace(c) || '0' <= c && c <= '9') {
		return true
	}
	switch _, ver := p.lit.push(c, p.form.counted); ver {
	case bad:
		return p.fail()
	case done:
		p.leave()
	}
	return true
}

func (p *Parser) fenceWord() string {
	if p.fence {
		return "json"
	}
	return ""
}

// beginArguments follows a head.
func (p *Parser) beginArguments() {
	p.at, p.fence, p.ending = inArguments, false, p.form.end
	if p.form.again {
		p.ending += p.name + p.form.tail
	}
	switch p.form.body {
	case bodyJSON:
		p.at = beforeArguments
	case bodyTags:
		name, tools := p.name, p.tools
		p.tags.start(p.form.tags, p.ending, func(parameter string) types { return tools.types(name, parameter) }, tools.parameters(name))
		p.tags.stops = p.form.stops()
	case bodyPython:
		p.value.startInside(pythonFlavor, 'k')
	case bodyBare:
		p.value.bare = p.form.quote
		p.value.startInside(bareFlavor, 'g')
	}
}

// gapByte takes a byte between the head and JSON.
func (p *Parser) gapByte(c byte) bool {
	if len(p.lit.word) == 0 {
		switch {
		case isSpace(c):
			return true
		case c == '`':
			p.fence = true
			return true
		case c == '{':
			p.at = inArguments
			p.value.start(jsonFlavor)
			return p.argumentsByte(c)
		}
	}
	which, ver := p.lit.push(c, p.ending, p.fenceWord())
	switch {
	case ver == bad:
		return p.fail()
	case ver == done && which == 0:
		if !p.commit() {
			return p.fail()
		}
		p.out = append(p.out, "{}"...)
		p.end(false, p.pos+1)
	case ver == done:
		p.fence = false
	}
	return true
}

// argumentsByte reads a byte of arguments after a head.
func (p *Parser) argumentsByte(c byte) bool {
	var ver verdict
	if p.form.body == bodyTags {
		p.out, ver = p.tags.push(c, p.out)
	} else {
		p.out, ver = p.value.push(c, p.out)
	}
	if ver == bad {
		return p.breakOff()
	}
	if ver == before && p.form.endless() {
		return p.endBefore()
	}
	if p.form.last {
		if ver == done {
			p.beginHead()
		}
		return true
	}
	if !p.committed && len(p.out) > 0 && !p.commit() {
		return p.fail()
	}
	if ver == ended {
		p.end(false, p.pos)
		return false
	}
	if ver != done {
		return true
	}
	if body := p.form.body; p.form.end == "" || body == bodyTags || body == bodyPython {
		p.end(false, p.pos+1)
		return true
	}
	p.flush()
	p.at, p.held, p.raw = inTail, true, p.raw[:0]
	return true
}

// objectByte reads a byte of a call that is a JSON object.
func (p *Parser) objectByte(c byte) bool {
	var ver verdict
	p.out, ver = p.object.push(c, p.out)
	p.name, p.id = p.object.name, p.object.id
	if ver == bad {
		if p.committed && p.object.complete {
			return p.contradict()
		}
		return p.breakOff()
	}
	if !p.committed && (ver == done || p.object.begun && p.name != "") && !p.commit() {
		return p.fail()
	}
	if p.committed && p.object.complete && !p.held {
		p.held, p.raw = true, p.raw[:0] // what follows the arguments
	}
	if ver == done {
		if !p.object.begun {
			p.out = append(p.out, "{}"...)
		}
		p.end(false, p.pos+1)
	}
	return true
}

// contradict ends a call with complete arguments before a byte that does not fit.
func (p *Parser) contradict() bool {
	p.back()
	p.again()
	text := string(p.raw)
	p.end(false, p.pos-len(text))
	p.at, p.skip = inText, false
	if strings.TrimSpace(text) != "" {
		p.say(Content, text, p.pos-len(text))
	}
	return false
}

// tailByte reads a byte after complete arguments.
func (p *Parser) tailByte(c byte) bool {
	fence := c == '`' && p.ending[0] != '`' // closes the arguments, not the call
	if len(p.lit.word) == 0 && (isSpace(c) || fence) {
		return true
	}
	_, ver := p.lit.push(c, p.ending)
	switch {
	case ver == done:
		p.end(false, p.pos+1)
	case ver == bad && len(p.lit.word) > 0:
		return p.contradict()
	case ver == bad:
		p.end(false, p.pos)
		return false
	}
	return true
}

// commit starts the call. In a form without an opening marker or without an end, only known tools
// can be called.
func (p *Parser) commit() bool {
	if p.form.peek != "" || p.form.endless() {
		if _, ok := p.tools[p.name]; !ok {
			return false
		}
	}
	p.events = append(p.events, Event{Kind: CallStart, Index: p.index, Name: p.name, ID: p.id, Pos: max(p.rawPos, 0)})
	p.committed, p.held, p.raw = true, false, p.raw[:0]
	p.fresh = false
	return true
}

// flush emits the arguments so far.
func (p *Parser) flush() {
	if p.committed && len(p.out) > 0 {
		p.events = append(p.events, Event{Kind: CallArguments, Index: p.index, Text: string(p.out)})
		p.out = p.out[:0]
	}
}

// end ends the call. pos is the offset of the text after it.
func (p *Parser) end(broken bool, pos int) {
	p.flush()
	p.events = append(p.events, Event{Kind: CallEnd, Index: p.index, ID: p.id, Broken: broken, Pos: pos})
	p.index++
	p.section++
	p.committed, p.held = false, true
	p.raw, p.out, p.lit.word = p.raw[:0], p.out[:0], p.lit.word[:0]
	f := p.form
	if p.at == inObject || p.list == openList || f.close != "" || f.call != "" {
		p.at = inSection
	} else {
		p.at, p.skip = inText, true
	}
}

// breakOff ends a call with invalid arguments. A call that has not started becomes content.
func (p *Parser) breakOff() bool {
	if !p.committed {
		return p.fail()
	}
	p.out = append(p.out, p.rest()...)
	p.again()
	p.end(true, p.pos)
	p.at, p.skip = inText, false
	return false
}

// rest returns the arguments that were read and not yet written.
func (p *Parser) rest() []byte {
	switch {
	case p.at == inObject:
		return p.object.value.rest()
	case p.form.body == bodyTags:
		return p.tags.rest()
	}
	return p.value.rest()
}

// cutOff ends the text inside markup.
func (p *Parser) cutOff() {
	switch {
	case p.at == inArguments && p.form.endless() && p.endLast():
	case p.at == inTail || p.committed && p.at == inObject && p.object.complete:
		p.end(false, p.pos)
	case p.committed:
		p.breakOff()
	case p.section == 0 || len(bytes.TrimSpace(p.raw)) > 0 && !p.closing():
		p.say(Content, string(p.raw), p.rawPos)
	}
}

// closing reports whether the text ends inside the section's close.
func (p *Parser) closing() bool {
	return p.at == inNumber || p.at == inSection && len(p.lit.word) > 0 && begins(p.form.close, string(p.lit.word))
}
