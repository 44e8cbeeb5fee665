package generate

import (
	"context"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/chat/toolcall"
)

// Conversation is what a chat endpoint asks the model to answer, in the form of no dialect.
//
// Messages and Tools have the form that chat templates are written for: a message is an object
// with a role and content, and perhaps tool_calls, tool_call_id and reasoning_content; a tool is
// an object of type function. Objects keep the client's order of keys, because templates show it
// to the model. A dialect with other messages converts them.
type Conversation struct {
	chat.Request
	ToolChoice ToolChoice
	// AddSpecial adds the tokenizer's special tokens around the rendered text. Templates
	// usually write them.
	AddSpecial bool
}

// ToolChoice says whether the model may call tools.
type ToolChoice uint8

// The choices.
const (
	ToolsAuto ToolChoice = iota // the model decides
	ToolsNone                   // the template does not show the tools
)

// tools returns the tools that the model sees.
func (c *Conversation) tools() chat.Value {
	if c.ToolChoice == ToolsNone {
		return nil
	}
	return c.Tools
}

// Render returns the text of c by the model's chat template. Errors are of type *wire.Error.
func (m *Model) Render(c Conversation) (string, error) {
	c.Tools = c.tools()
	text, err := m.ChatPrompt(m.FromClient(c.Request))
	if err != nil {
		return "", AsError(err, "messages")
	}
	return text, nil
}

// Converse makes r the request for the next message of c: its prompt, and how the answer is
// parsed. It ends when ctx does. Errors are of type *wire.Error.
func (m *Model) Converse(ctx context.Context, c Conversation, r *Request) error {
	text, err := m.Render(c)
	if err != nil {
		return err
	}
	field := c.ContinueField
	r.Continues = field != ""
	r.Parse = &toolcall.Options{Prompt: text, InReasoning: field != "" && field != "content", Tools: c.tools()}
	if r.Prompt, err = m.EncodePrompt(ctx, text, c.AddSpecial); err != nil {
		return AsError(err, "messages")
	}
	return nil
}
