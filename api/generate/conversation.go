package generate

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// A Conversation is a chat that the model continues. It does not depend on a dialect: dialects
// convert their messages.
type Conversation struct {
	text.Conversation
	ToolChoice ToolChoice
	// Tool is the function that must be called if ToolChoice is ToolsRequired; "" means any
	// function.
	Tool string
	// SingleCall limits the answer to one call.
	SingleCall bool
	// Strict has the functions whose arguments must satisfy their schemas.
	Strict map[string]bool
	custom map[string]customTool // by name; see CustomTool
	// AddSpecial adds the tokenizer's special tokens around the rendered text. Most templates
	// already write them.
	AddSpecial bool
}

// ToolChoice says whether the model may call tools.
type ToolChoice uint8

// The choices.
const (
	ToolsAuto     ToolChoice = iota // the model decides
	ToolsNone                       // tools are not shown to the model
	ToolsRequired                   // the model must call a tool
)

// tools returns the tools that are shown to the model.
func (c *Conversation) tools() []text.Tool {
	if c.ToolChoice == ToolsNone {
		return nil
	}
	return c.Tools
}

// NoChat returns nil if the model can chat. Otherwise it returns a *wire.Error with the reason:
// chat needs a tokenizer and a chat template.
func (m *Model) NoChat() error {
	switch {
	case m.Tokenizer == nil:
		return wire.Invalidf("messages", "The model %s has no tokenizer: it has no chat, only completions of token ids.", m.Name)
	case m.Chat == nil || !m.Chat.HasTemplate():
		return wire.Invalidf("messages", "The model %s has no chat template: use /v1/completions.", m.Name)
	}
	return nil
}

// Render renders c with the model's chat template. Errors are of type *wire.Error.
func (m *Model) Render(c Conversation) (string, error) {
	if err := m.NoChat(); err != nil {
		return "", err
	}
	c.Tools = c.tools()
	prompt, err := m.Chat.Render(c.Conversation)
	var template *text.TemplateError
	switch {
	case errors.As(err, &template) && template.Unusable:
		return "", &wire.Error{Kind: wire.Invalid, Field: "messages", Message: fmt.Sprintf("The chat template of %s cannot be used: %v", m.Name, err), Err: err}
	case err != nil:
		return "", AsError(err, "messages")
	}
	return prompt, nil
}

// Converse sets the prompt of r to the rendered conversation c, and r.Parse to parse the answer. It
// ends when ctx does. Errors are of type *wire.Error.
func (m *Model) Converse(ctx context.Context, c Conversation, r *Request) error {
	prompt, err := m.Render(c)
	if err != nil {
		return err
	}
	field := c.ContinueFinalMessage
	r.Continues = field != ""
	r.Parse = &text.ParseOptions{Prompt: prompt, InReasoning: field != "" && field != "content", Tools: c.tools()}
	r.custom = c.custom
	if err := m.forceCalls(&c, r); err != nil {
		return err
	}
	if r.Prompt, err = m.EncodeLast(ctx, prompt, c.AddSpecial, r.Truncate); err != nil {
		return AsError(err, "messages")
	}
	return nil
}
