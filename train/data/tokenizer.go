package data

import (
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/heftai/heft/text"
)

// Tokenizer is the tokenizer and the chat template of a model folder: an [Encoder] and a
// [Template]. It is safe for concurrent use.
type Tokenizer struct {
	text *text.Tokenizer
	chat *text.Chat
}

var (
	_ Encoder            = (*Tokenizer)(nil)
	_ GenerationTemplate = (*Tokenizer)(nil)
)

// OpenTokenizer reads the tokenizer, the chat templates and the special tokens of a model, a folder
// or ORG/NAME as [text.Open] takes it. Only the tokenizer is required.
func OpenTokenizer(model string) (*Tokenizer, error) {
	t, c, err := text.Open(model)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &Tokenizer{t, c}, nil
}

// OpenTokenizerFS is like [OpenTokenizer], for a model at the root of files. name is its name in
// errors.
func OpenTokenizerFS(name string, files fs.FS) (*Tokenizer, error) {
	t, c, err := text.OpenFS(name, files)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &Tokenizer{t, c}, nil
}

// Encode implements [Encoder].
func (t *Tokenizer) Encode(s string, special bool) ([]int32, [][2]int, error) {
	return t.text.EncodeSpans(s, text.EncodeOptions{AddSpecialTokens: special})
}

// Decode turns ids into text, special tokens included.
func (t *Tokenizer) Decode(ids []int32) string { return t.text.Decode(ids, false) }

// DecodeText turns ids into text without special tokens.
func (t *Tokenizer) DecodeText(ids []int32) string { return t.text.Decode(ids, true) }

// Special returns the id of the token for a role, such as "eos_token" or "pad_token".
func (t *Tokenizer) Special(role string) (int32, bool) {
	name := t.chat.SpecialToken(role)
	if name == "" {
		return 0, false
	}
	return t.text.ID(name)
}

// Render implements [Template]. It fails if the model has no chat template.
func (t *Tokenizer) Render(messages []json.RawMessage, tools json.RawMessage, prompt bool) (string, error) {
	c, err := conversationOf(messages, tools, prompt)
	if err != nil {
		return "", err
	}
	return t.chat.Render(c)
}

// RenderGenerations implements [GenerationTemplate].
func (t *Tokenizer) RenderGenerations(messages []json.RawMessage, tools json.RawMessage) (string, [][2]int, error) {
	c, err := conversationOf(messages, tools, false)
	if err != nil {
		return "", nil, err
	}
	return t.chat.RenderGenerations(c)
}

func conversationOf(messages []json.RawMessage, tools json.RawMessage, prompt bool) (text.Conversation, error) {
	c := text.Conversation{AddGenerationPrompt: prompt, Messages: make([]text.Message, len(messages))}
	for i, m := range messages {
		if err := c.Messages[i].UnmarshalJSON(m); err != nil {
			return c, fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	if len(tools) > 0 {
		if err := json.Unmarshal(tools, &c.Tools); err != nil {
			return c, fmt.Errorf("tools: %w", err)
		}
	}
	return c, nil
}

// TokenizeConversation makes a sequence of a chat. Only the assistant's messages and their ends are
// learned, unless o.LearnPrompt is set. It returns an error if the template does not render the
// conversation, and the errors of [TokenizeChat].
func (t *Tokenizer) TokenizeConversation(c text.Conversation, o TextOptions) (Sequence, error) {
	messages := make([]json.RawMessage, len(c.Messages))
	for i, m := range c.Messages {
		b, err := m.MarshalJSON()
		if err != nil {
			return Sequence{}, fmt.Errorf("data: message %d: %w", i, err)
		}
		messages[i] = b
	}
	var tools json.RawMessage
	if len(c.Tools) > 0 {
		b, err := json.Marshal(c.Tools)
		if err != nil {
			return Sequence{}, fmt.Errorf("data: tools: %w", err)
		}
		tools = b
	}
	return TokenizeChat(t, t, messages, tools, o)
}
