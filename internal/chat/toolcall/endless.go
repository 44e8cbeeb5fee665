package toolcall

import "strings"

// endless reports whether a call of the form ends only at a text that is not a parameter.
func (f *form) endless() bool { return f.body == bodyTags && f.end == "" }

// stops returns the texts that may follow such a call: the marker of the next one and the end of
// the section.
func (f *form) stops() []string {
	if !f.endless() {
		return nil
	}
	next := f.call
	if next == "" {
		next = f.open
	}
	var out []string
	for _, s := range []string{next, f.sep, f.close} {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// endBefore ends a call before a byte that starts no parameter. The text that the reader holds is
// read again.
func (p *Parser) endBefore() bool {
	p.again()
	if !p.endParameters() {
		return p.fail()
	}
	p.end(false, p.pos)
	return false
}

// endLast ends a call at the end of the answer. It returns false if the call ends within a
// parameter.
func (p *Parser) endLast() bool {
	var ok bool
	if p.out, ok = p.tags.finish(p.out); !ok || !p.endParameters() {
		return false
	}
	p.end(false, p.pos)
	return true
}

// endParameters completes the arguments of a call, and starts it if it has none.
func (p *Parser) endParameters() bool {
	if p.tags.n == 0 {
		p.out = append(p.out, '{')
	}
	p.out = append(p.out, '}')
	return p.committed || p.commit()
}

// seekWithoutEnd is seek for calls without an end.
func (r *tagReader) seekWithoutEnd(c byte, out []byte) ([]byte, verdict) {
	texts := append([]string{r.tags.open, r.between()}, r.stops...)
	which, ver := r.lit.push(c, texts...)
	switch {
	case ver == more || ver == done && which == 1:
		return out, more
	case ver == bad && r.tags.open != "":
		return out, before
	case ver == bad:
		text := string(r.lit.word)
		r.state, r.word, r.lit.word = tagKey, append(r.word[:0], text...), r.lit.word[:0]
		return r.push(c, out)
	case which == 0:
		r.state, r.word = tagKey, r.word[:0]
		return out, more
	}
	stop := texts[which]
	return out, r.stop(stop[:len(stop)-1])
}

// stop ends the call before text and the byte that was just read.
func (r *tagReader) stop(text string) verdict {
	r.state, r.lit.word = tagSeek, append(r.lit.word[:0], text...)
	return before
}

// stopOf returns the text after a call that held ends with, on a line of its own. maybe reports
// whether held may start such a text.
func (r *tagReader) stopOf(held string) (stop string, maybe bool) {
	text := strings.TrimLeft(held, spaces)
	if !strings.Contains(held[:len(held)-len(text)], "\n") {
		return "", text == "" && len(held) < maxName
	}
	for _, s := range r.stops {
		if text == s {
			return s, false
		}
		maybe = maybe || begins(s, text)
	}
	return "", maybe
}

// finish ends the last parameter at the end of the answer.
func (r *tagReader) finish(out []byte) ([]byte, bool) {
	switch {
	case r.state == tagSeek:
		return out, len(r.lit.word) == 0
	case r.state == tagValue:
		out, ver := r.value.push('\n', out)
		return out, ver == before || ver == done
	case r.tags.plain == nil || r.state != tagText && r.state != tagFirst:
		return out, false
	}
	for _, c := range []byte(strings.TrimRight(string(r.hold), spaces)) {
		out = r.addText(c, out)
	}
	r.hold = r.hold[:0]
	return r.endText(out), true
}
