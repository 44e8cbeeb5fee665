package generate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/tokenizer"
)

// Encode turns a text into ids. special adds what the tokenizer puts around a text, such
// as the token that begins one; a chat template has written that itself. It ends when ctx does.
func (m *Model) Encode(ctx context.Context, text string, special bool) ([]int32, error) {
	return m.encode(text, tokenizer.EncodeOptions{AddSpecialTokens: special, Stop: ctx.Err})
}

// EncodePrompt is Encode for a prompt. What has more tokens than Limit is an error as soon as
// that is certain.
func (m *Model) EncodePrompt(ctx context.Context, text string, special bool) ([]int32, error) {
	return m.encode(text, tokenizer.EncodeOptions{AddSpecialTokens: special, Stop: ctx.Err, MaxTokens: m.Limit()})
}

func (m *Model) encode(text string, o tokenizer.EncodeOptions) ([]int32, error) {
	if m.Tokenizer == nil {
		return nil, wire.Invalidf("prompt", "The model %s has no tokenizer: the prompt must be a list of token ids.", m.Name)
	}
	return m.Tokenizer.EncodeIDs(text, o)
}

// FromClient adapts a client's conversation to the model's chat template, see
// [chat.Template.Adapt]. It joins parts of text if the template takes no parts. The request
// given is not changed.
func (m *Model) FromClient(r chat.Request) chat.Request {
	if m.Chat == nil {
		return r
	}
	template, err := m.Chat.Template(r.Tools)
	if err != nil {
		return r // ChatPrompt reports it
	}
	r.SpecialTokens = m.Chat.SpecialTokens
	r = template.Adapt(r)
	if !takesParts.MatchString(template.Source()) {
		r.Messages = joinParts(r.Messages)
	}
	return r
}

// ChatPrompt renders a conversation by the model's template for its tools, with the model's
// special tokens. Its ids are those of Encode without special tokens added.
func (m *Model) ChatPrompt(r chat.Request) (string, error) {
	switch {
	case m.Tokenizer == nil:
		return "", wire.Invalidf("messages", "The model %s has no tokenizer: it has no chat, only completions of token ids.", m.Name)
	case m.Chat == nil || len(m.Chat.Names()) == 0:
		return "", wire.Invalidf("messages", "The model %s has no chat template: use /v1/completions.", m.Name)
	}
	r.SpecialTokens = m.Chat.SpecialTokens
	template, err := m.Chat.Template(r.Tools)
	if err != nil {
		return "", &wire.Error{Kind: wire.Invalid, Field: "messages", Message: fmt.Sprintf("The chat template of %s cannot be used: %v", m.Name, err), Err: err}
	}
	prompt, err := template.Render(r)
	var refused *chat.Error
	if errors.As(err, &refused) {
		return "", &wire.Error{Kind: wire.Invalid, Field: "messages", Message: refused.Message, Err: err}
	}
	return prompt, err
}

// takesParts finds a template's loop over the parts of a content, and neither prose about
// content nor a count of it.
var takesParts = regexp.MustCompile(`\{%[-+]?\s*for\s+\w+\s+in\s+\(?[\w.\[\]'"-]*content\b`)

// joinParts makes one text of contents that are lists of text parts, line by line as other
// servers do. The messages given are not changed.
func joinParts(messages []chat.Value) []chat.Value {
	out := slices.Clone(messages)
	for i, v := range messages {
		m, ok := v.(*chat.Dict)
		if !ok {
			continue
		}
		content, _ := m.Get("content")
		list, ok := content.(*chat.List)
		if !ok {
			continue
		}
		if text, ok := joinTexts(list); ok {
			joined := m.Clone()
			joined.Set("content", text)
			out[i] = joined
		}
	}
	return out
}

func joinTexts(parts *chat.List) (string, bool) {
	texts := make([]string, 0, len(parts.Items))
	for _, p := range parts.Items {
		d, ok := p.(*chat.Dict)
		if !ok {
			return "", false
		}
		text, _ := d.Get("text")
		s, ok := text.(string)
		if !ok {
			return "", false
		}
		texts = append(texts, s)
	}
	return strings.Join(texts, "\n"), true
}
