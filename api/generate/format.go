package generate

import (
	"fmt"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/chat/toolcall"
	"github.com/heftai/heft/internal/tokenizer"
)

// Family finds how a model writes reasoning and calls of tools. calls and reasoning are
// names of families that somebody insists on; without them, the chat template tells,
// and then the special tokens. The reasoning of a family that is named for its calls comes
// with it; "none" leaves thoughts in the content. templates and words may be nil.
func Family(templates *chat.Set, words *tokenizer.Tokenizer, calls, reasoning string) (*toolcall.Family, error) {
	family := detect(templates, words)
	var err error
	if calls != "" {
		if family, err = toolcall.ByName(calls); err != nil {
			return nil, fmt.Errorf("generate: %w", err)
		}
	}
	switch reasoning {
	case "":
		return family, nil
	case "none":
		return family.WithReasoning(nil), nil
	}
	thoughts, err := toolcall.ByName(reasoning)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return family.WithReasoning(thoughts), nil
}

// detect looks at the template for conversations with tools.
func detect(templates *chat.Set, words *tokenizer.Tokenizer) *toolcall.Family {
	var source string
	if templates != nil {
		if template, err := templates.Template(chat.NewList()); err == nil {
			source = template.Source()
		}
	}
	var special []string
	if words != nil {
		for _, t := range words.AddedTokens() {
			if t.Special {
				special = append(special, t.Content)
			}
		}
	}
	return toolcall.Detect(source, special...)
}

// format is a model's family and what follows from it.
type format struct {
	*toolcall.Family
	hidden map[int32]bool // special tokens that are no markers
}

// answers is the model's format, found when it is first needed. There is a tokenizer.
func (m *Model) answers() *format {
	m.formatOnce.Do(func() {
		f := &m.format
		if f.Family = m.Family; f.Family == nil {
			f.Family = detect(m.Chat, m.Tokenizer)
		}
		f.hidden = map[int32]bool{}
		for _, t := range m.Tokenizer.AddedTokens() {
			if t.Special && m.Tokenizer.Decode([]int32{t.ID}, true) == "" && !f.Visible(t.Content) {
				f.hidden[t.ID] = true
			}
		}
	})
	return &m.format
}
