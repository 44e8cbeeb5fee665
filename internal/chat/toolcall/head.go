package toolcall

import (
	"bytes"
	"strings"
)

// beginHead prepares p for the fields of a head.
func (p *Parser) beginHead() {
	p.at, p.field, p.nameEnd = inHead, 0, -1
	p.name, p.id = "", ""
	p.word = p.word[:0]
}

// beginCall prepares p for a head and arguments, in the form's order.
func (p *Parser) beginCall() {
	p.beginHead()
	if p.form.last {
		p.beginArguments()
	}
}

// headByte reads a byte of a field of the head.
func (p *Parser) headByte(c byte) bool {
	field := &p.form.head[p.field]
	if len(p.word) == 0 && isSpace(c) && field.kind != skipField {
		return true
	}
	if strings.IndexByte(field.stop, c) >= 0 {
		if !p.endField(field, string(p.word)) {
			return p.fail()
		}
		return p.back()
	}
	p.word = append(p.word, c)
	if p.closesSection() {
		return true
	}
	if field.until != "" && strings.HasSuffix(string(p.tail(field.until)), field.until) {
		text := string(p.word[:len(p.word)-len(field.until)])
		if !p.endField(field, text) {
			return p.fail()
		}
		return true
	}
	if field.kind == emptyField && !strings.HasPrefix(field.until, string(p.word)) {
		return p.fail()
	}
	if field.kind == nameField && !p.nameSoFar(c, field.until) || len(p.word) > 2*maxName {
		return p.fail()
	}
	return true
}

// closesSection reports whether the marker of a call and the text after it are a prefix of the
// section's end. If they are the whole end, it leaves the section.
func (p *Parser) closesSection() bool {
	f := p.form
	if p.section == 0 || p.field > 0 || f.call == "" || !strings.HasPrefix(f.close, f.call) {
		return false
	}
	rest := f.close[len(f.call):]
	if rest == string(p.word) {
		p.word = p.word[:0]
		p.leave()
		return true
	}
	return begins(rest, string(p.word))
}

// tail returns the end of the field that may equal until.
func (p *Parser) tail(until string) []byte {
	return p.word[max(0, len(p.word)-len(until)):]
}

// nameSoFar reports whether the field may still become a name: white space or a prefix of until
// follows the name.
func (p *Parser) nameSoFar(c byte, until string) bool {
	if p.nameEnd < 0 {
		// A byte that a name may contain ends the name only if until starts with it and is not a
		// word.
		if isNameByte(c) && !(until != "" && until[0] == c && !isTokenByte(c)) {
			return true
		}
		p.nameEnd = len(p.word) - 1
	}
	after := bytes.TrimLeft(p.word[p.nameEnd:], " \t\r\n")
	return strings.HasPrefix(until, string(after))
}

// endField stores a field of the head.
func (p *Parser) endField(field *field, text string) bool {
	text = strings.TrimSpace(text)
	switch field.kind {
	case nameField:
		p.name = strings.TrimSuffix(text, ".call")
	case idField:
		p.id = text
	case nameIDField:
		p.name, p.id, _ = strings.Cut(text, "[CALL_ID]")
	case idNameField:
		p.id, p.name = text, strings.TrimPrefix(text, "functions.")
		if i := strings.LastIndexByte(p.name, ':'); i >= 0 {
			p.name = p.name[:i]
		}
	case recipientField:
		if i := strings.IndexAny(text, " <"); i >= 0 {
			text = text[:i]
		}
		p.name = strings.TrimPrefix(text, "functions.")
	}
	p.word, p.nameEnd = p.word[:0], -1
	if p.field++; p.field < len(p.form.head) {
		return true
	}
	if !isName(p.name) {
		return false
	}
	if p.form.last {
		if !p.commit() {
			return false
		}
		p.end(false, p.pos+1)
		return true
	}
	p.beginArguments()
	return true
}
