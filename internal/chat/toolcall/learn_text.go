package toolcall

import (
	"slices"
	"strings"
	"unicode"
)

// learnThoughts finds how the template writes reasoning.
func (l *lesson) learnThoughts(s *spec) {
	before := l.answers
	defer func() { l.answers = before }()
	for _, thinking := range []any{before.thinking, true} {
		p := *l.prober
		p.thinking = thinking
		a, ok := newAnswers(&p)
		if !ok {
			continue
		}
		l.answers = a
		if t, rest, ok := l.thought(); ok {
			s.thinks = append(s.thinks, t)
			s.drops = append(s.drops, strings.TrimSpace(rest))
			break
		}
	}
	// Many templates leave out the reasoning of earlier answers, although models write it. Only
	// earlier answers can be rendered.
	source := l.template.Source()
	for _, t := range []think{xmlThink, {open: "[THINK]", close: "[/THINK]"}, {open: "<thinking>", close: "</thinking>"}} {
		known := slices.ContainsFunc(s.thinks, func(u think) bool { return u.open == t.open || u.close == t.close })
		if !known && strings.Contains(source, t.close) {
			s.thinks = append(s.thinks, t)
		}
	}
}

// thought finds the markers around reasoning. rest is other text between the reasoning and what
// follows it.
func (l *lesson) thought() (t think, rest string, ok bool) {
	call := newProbeCall(0, probeArguments)
	var between string
	if text, ok := l.answer(probeContent, probeThought); ok {
		if open, after, ok := strings.Cut(text, probeThought); ok {
			between, _, ok = strings.Cut(after, probeContent)
			if ok {
				t.open = l.openThought(open, firstTag(between))
				frame := strings.TrimSpace(l.answers.frame)
				if cut, ok := cutSuffixTrimmed(between, frame); ok && cut != "" {
					between = cut
				}
			}
		}
	}
	if text, ok := l.answer("", probeThought, call); ok {
		if open, after, ok := strings.Cut(text, probeThought); ok {
			if at, ok := l.find(after, call); ok {
				after = l.beforeCall(after[:at.start])
				if t.open == "" {
					t.open, between = l.openThought(open, firstTag(after)), after
				}
				if !strings.Contains(after, firstTag(between)) {
					t.implied = []string{l.marker()}
				}
			}
		}
	}
	between = strings.TrimSpace(between)
	t.close = firstTag(between)
	if t.open == "" || t.close == "" {
		return t, "", false
	}
	return t, strings.TrimPrefix(between, t.close), true
}

// beforeCall returns s without the marker of calls at its end.
func (l *lesson) beforeCall(s string) string {
	s = strings.TrimSpace(s)
	for _, end := range []string{"[", "```json", "```", l.form.call, l.form.open} {
		if end != "" && (end != "[" || l.list) {
			s = strings.TrimSpace(strings.TrimSuffix(s, end))
		}
	}
	return s
}

// marker returns the text that calls start with.
func (l *lesson) marker() string {
	if l.form.open != "" {
		return l.form.open
	}
	return l.form.peek
}

// openThought returns the marker that opens reasoning: the text before it, or the end of the
// prompt.
func (l *lesson) openThought(before, closing string) string {
	if s := strings.TrimSpace(before); s != "" {
		return s
	}
	if s := strings.TrimSpace(l.opened); s != "" {
		return s
	}
	tags := tag.FindAllString(l.header, -1)
	if n := len(tags); n > 0 && strings.HasSuffix(strings.TrimSpace(l.header), tags[n-1]) && letters(tags[n-1]) == letters(closing) {
		return tags[n-1]
	}
	return ""
}

// letters returns the letters of a marker. An opening tag and its closing tag have the same
// letters.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return -1
	}, s)
}

// firstTag returns the tag at the start of s, or all of s.
func firstTag(s string) string {
	s = strings.TrimSpace(s)
	if i := tag.FindStringIndex(s); i != nil && i[0] == 0 {
		return s[:i[1]]
	}
	return s
}

// learnFrame finds the markers around the content of an answer. They are dropped.
func (l *lesson) learnFrame(s *spec) {
	call := newProbeCall(0, probeArguments)
	var texts []string
	frame := strings.TrimSpace(l.answers.frame)
	switch tags := tag.FindAllString(frame, -1); {
	case l.seeded(l.form.open) && l.form.open != "":
		s.seeds = []string{l.form.open}
		s.drops = append(s.drops, l.form.open+l.answers.frame)
	case len(tags) > 0 && strings.HasSuffix(frame, tags[len(tags)-1]):
		s.drops = append(s.drops, frame)
	}
	texts = append(texts, frame)
	if tag.MatchString(l.join) {
		s.ends = []string{l.join}
	}
	if text, ok := l.tail(false, l.message("", "", call)); ok {
		// A marker that ends content before the end of the turn may also end reasoning.
		end := l.answers.end[:len(l.answers.end)-len(commonSuffix(l.answers.end, text))]
		s.ends = append(s.ends, tag.FindAllString(end, -1)...)
	}
	if both, ok := l.answer(probeContent, "", call); ok {
		if _, after, ok := strings.Cut(both, probeContent); ok {
			if at, ok := l.find(after, call); ok {
				after = l.beforeCall(after[:at.start])
				texts = append(texts, after)
			}
		}
	}
	for _, text := range append(texts, l.turn) {
		s.drops = append(s.drops, tag.FindAllString(text, -1)...)
	}
}

// withoutEmptyThoughts removes reasoning from the markers of calls, because templates write empty
// reasoning before calls that have none.
func (s *spec) withoutEmptyThoughts() {
	for i := range s.forms {
		open := s.forms[i].open
		for _, t := range s.thinks {
			open = strings.TrimSpace(strings.TrimPrefix(open, t.open))
			open = strings.TrimSpace(strings.TrimPrefix(open, t.close))
		}
		if open != "" {
			s.forms[i].open = open
		}
	}
}

// tidy removes drops that are also other markers.
func (s *spec) tidy() {
	s.drops = slices.DeleteFunc(s.drops, func(d string) bool {
		within := func(marker string) bool { return strings.Contains(marker, d) }
		for _, t := range s.thinks {
			if within(t.open) || within(t.close) || strings.Contains(d, t.open) || strings.Contains(d, t.close) {
				return true
			}
		}
		return d == "" || slices.ContainsFunc(s.forms, func(f form) bool {
			return within(f.open) || within(f.call) || within(f.close) || within(f.sep) || within(f.end) || within(f.tail) ||
				f.counted != "" && strings.HasPrefix(d, f.open) && strings.HasSuffix(d, f.counted) ||
				f.countedClose && strings.HasPrefix(d, f.close) && strings.HasSuffix(d, f.counted)
		})
	})
	for _, end := range s.ends {
		if !slices.ContainsFunc(s.forms, func(f form) bool { return end == f.open || end == f.call }) {
			s.drops = append(s.drops, end)
		}
	}
	slices.Sort(s.drops)
	s.drops = slices.Compact(s.drops)
}
