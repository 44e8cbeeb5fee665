package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrUnstable is returned if the answers of a conversation cannot be located in its rendering,
// because the template changes them.
var ErrUnstable = errors.New("data: the template changes the answers, so they cannot be located in its text")

// GenerationTemplate is a [Template] that can mark the assistant's texts.
type GenerationTemplate interface {
	Template
	// RenderGenerations renders a conversation without the header of a next answer. It returns the
	// half-open byte ranges that the template marks as the assistant's, or nil if it marks none.
	RenderGenerations(messages []json.RawMessage, tools json.RawMessage) (string, [][2]int, error)
}

// chatText is a rendered conversation in which answers are located.
type chatText struct {
	t        Template
	messages []json.RawMessage
	tools    json.RawMessage
	full     string   // the rendering of all messages
	roles    []string // of each message
}

// answerRange is the place of one answer in the rendering. It extends from the answer's first byte
// to the end that the template gives it. Everything after text was written by the template. If
// partial is set, only the beginning of the usual header precedes from.
type answerRange struct {
	from, text, to int
	partial        bool
}

// TokenizeChat makes a sequence of a conversation. The labels are the assistant's messages, up to
// the template's end of message. It locates them in the rendering of the whole conversation: by the
// template's generation blocks if t is a [GenerationTemplate] that has them, by renderings of the
// first messages if those are prefixes of the whole, or by marker words inserted into answers. It
// returns [ErrUnstable] if none of these works.
func TokenizeChat(e Encoder, t Template, messages []json.RawMessage, tools json.RawMessage, o TextOptions) (Sequence, error) {
	full, marked, err := render(t, messages, tools)
	if err != nil {
		return Sequence{}, fmt.Errorf("data: render: %w", err)
	}
	ranges := []answerRange{{from: 0, text: len(full), to: len(full)}}
	if !o.LearnPrompt {
		c := &chatText{t: t, messages: messages, tools: tools, full: full}
		if ranges, err = c.answers(marked, o.LastAnswer); err != nil {
			return Sequence{}, err
		}
	}
	ids, spans, err := e.Encode(full, false)
	if err != nil {
		return Sequence{}, fmt.Errorf("data: tokenize: %w", err)
	}
	s, err := masked(ids, spans, settled(ranges, full, spans))
	if err != nil {
		return Sequence{}, err
	}
	return o.finish(s), nil
}

// render renders a whole conversation. It also returns the ranges that the template marks.
func render(t Template, messages []json.RawMessage, tools json.RawMessage) (string, [][2]int, error) {
	if g, ok := t.(GenerationTemplate); ok {
		return g.RenderGenerations(messages, tools)
	}
	full, err := t.Render(messages, tools, false)
	return full, nil, err
}

// settled converts ranges to code points. Where the template deviates from the usual text, whole
// tokens count: an answer begins with the token in which the header deviates. It ends with the last
// complete token that agrees, but has at least one token.
func settled(ranges []answerRange, full string, spans [][2]int) [][2]int {
	out := make([][2]int, len(ranges))
	for i, r := range ranges {
		from, text, to := utf8.RuneCountInString(full[:r.from]), utf8.RuneCountInString(full[:r.text]), utf8.RuneCountInString(full[:r.to])
		end, first := text, 0
		for _, s := range spans {
			switch {
			case s == [2]int{}:
			case r.partial && s[0] < from && s[1] > from:
				from = s[0]
			case s[0] >= text && s[0] < to:
				if first == 0 {
					first = s[1]
				}
				if s[1] <= to {
					end = max(end, s[1])
				}
			}
		}
		out[i] = [2]int{from, max(end, min(first, to))}
	}
	return out
}

// answers locates the assistant's texts. If last is set, it locates only the last one.
func (c *chatText) answers(marked [][2]int, last bool) ([]answerRange, error) {
	c.roles = make([]string, len(c.messages))
	for i, raw := range c.messages {
		var m struct{ Role string }
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("data: message %d: %w", i+1, err)
		}
		c.roles[i] = m.Role
	}
	if marked != nil {
		return c.generations(marked, last), nil
	}
	ranges, err := c.byPrefixes(last)
	if err != nil {
		ranges, err = c.bySentinels(last)
	}
	return ranges, err
}

// generations returns the marked ranges, or only that of the last answer if last is set.
func (c *chatText) generations(marked [][2]int, last bool) []answerRange {
	var ranges []answerRange
	for _, m := range marked {
		ranges = append(ranges, answerRange{from: m[0], text: m[1], to: m[1]})
	}
	if !last {
		return ranges
	}
	from := ranges[len(ranges)-1].from
	if located, err := c.bySentinels(true); err == nil && len(located) > 0 {
		from = min(from, located[0].from)
	}
	for len(ranges) > 1 && ranges[0].from < from {
		ranges = ranges[1:]
	}
	return ranges
}

// byPrefixes locates answers between the renderings of the messages before and up to them.
func (c *chatText) byPrefixes(last bool) ([]answerRange, error) {
	var ranges []answerRange
	for i := len(c.messages) - 1; i >= 0; i-- {
		if c.roles[i] != "assistant" {
			continue
		}
		r, err := c.byPrefix(i)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
		if last {
			break
		}
	}
	return ranges, nil
}

// byPrefix locates message i. It begins where the header of an answer ends, as far as the template
// writes the same there.
func (c *chatText) byPrefix(i int) (answerRange, error) {
	var r answerRange
	r.to = len(c.full)
	if i < len(c.messages)-1 {
		upto, err := c.t.Render(c.messages[:i+1], c.tools, false)
		if err != nil {
			return r, err
		}
		if !strings.HasPrefix(c.full, upto) {
			return r, ErrUnstable
		}
		r.to = len(upto)
	}
	r.text = r.to
	if i == 0 {
		return r, nil
	}
	rest, err := c.t.Render(c.messages[:i], c.tools, false)
	if err != nil {
		return r, err
	}
	header, err := c.t.Render(c.messages[:i], c.tools, true)
	if err != nil {
		return r, err
	}
	r.from = common(header, c.full)
	if r.from < len(rest) && common(rest, c.full) < len(rest) {
		return r, ErrUnstable
	}
	r.partial = r.from < len(header)
	r.from = min(max(r.from, len(rest)), r.to)
	return r, nil
}

// common returns the length of the longest prefix of whole runes that a and b share.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}
