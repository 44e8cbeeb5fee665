package toolcall

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// Find returns the family of a model by its chat template for conversations with tools.
//
// It renders a few dozen conversations and learns from them how the template writes calls
// and reasoning, and checks that it reads back what it has learned. If the table of families
// has one that reads the same back, Find returns that one, because its table also knows what
// models write and templates do not show. The table alone decides where the template writes
// no calls or fails. templates may be nil. Find takes some milliseconds.
func Find(templates *chat.Set, specialTokens ...string) *Family {
	if templates == nil {
		return Detect("", specialTokens...)
	}
	t, err := templates.Template(chat.NewList())
	if err != nil {
		return Detect("", specialTokens...)
	}
	return find(t, templates.SpecialTokens, Detect(t.Source(), specialTokens...))
}

// find chooses between what the template teaches and the family that its markers name.
func find(t *chat.Template, special map[string]string, named *Family) *Family {
	r := learn(t, special)
	if r.writes == nil {
		out := named.learnThoughts(t, special)
		out.unread = !out.Calls() && takesTools(t, special)
		return out
	}
	good := 0
	if named.Calls() {
		good, _ = r.writes.readBack(named)
	}
	switch {
	case good > 0 && good >= r.score:
		return named
	case r.spec != nil:
		return newFamily(r.spec, "")
	}
	out := *named
	out.unread = true
	return &out
}

// Unread tells whether the template takes tools or writes calls in a notation that the
// family does not read. Calls are then part of the content.
func (f *Family) Unread() bool { return f.unread }

// takesTools tells whether the template shows a model the tools.
func takesTools(t *chat.Template, special map[string]string) bool {
	text, ok := newProber(t, special).render(true)
	return ok && strings.Contains(text, probeNames[0])
}

// learnThoughts is f, with the reasoning that the template writes in place of f's if f does
// not read it back.
func (f *Family) learnThoughts(t *chat.Template, special map[string]string) *Family {
	out := *f
	for _, s := range settings {
		p := newProber(t, special)
		p.setting = s
		a, ok := newAnswers(p)
		if !ok {
			continue
		}
		text, ok := a.answer(probeContent, probeThought)
		if !ok || !strings.Contains(text, probeThought) || !strings.Contains(text, probeContent) || a.readsThought(f, text) {
			continue
		}
		learned := &spec{name: learnedName}
		(&lesson{answers: a}).learnThoughts(learned)
		learned.tidy()
		with := &Family{spec: f.spec, unread: f.unread, thinks: learned.thinks, drops: slices.Concat(f.drops, learned.drops)}
		with.prepare()
		if a.readsThought(with, text) {
			return with
		}
	}
	return &out
}

// readsThought tells whether f reads the thought and the content in an answer.
func (a *answers) readsThought(f *Family, text string) bool {
	m := f.Parse(text, Options{Prompt: a.header})
	return strings.TrimSpace(m.Reasoning) == probeThought && strings.TrimSpace(m.Content) == probeContent
}
