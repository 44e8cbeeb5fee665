package data

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/tokenizer"
)

// Tokenizer is a model folder's tokenizer and chat template: an [Encoder] and a
// [Template]. It is safe for concurrent use.
type Tokenizer struct {
	text *tokenizer.Tokenizer
	chat *chat.Set
}

var (
	_ Encoder  = (*Tokenizer)(nil)
	_ Template = (*Tokenizer)(nil)
)

// OpenTokenizer reads tokenizer.json of a model's folder, and what there is of chat
// templates and special tokens beside it.
func OpenTokenizer(dir string) (*Tokenizer, error) { return OpenTokenizerFS(os.DirFS(dir)) }

// OpenTokenizerFS is OpenTokenizer of any file system.
func OpenTokenizerFS(dir fs.FS) (*Tokenizer, error) {
	text, err := tokenizer.LoadFS(dir, tokenizer.FileName)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	set, err := chat.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &Tokenizer{text, set}, nil
}

// Encode implements [Encoder].
func (t *Tokenizer) Encode(text string, special bool) ([]int32, [][2]int, error) {
	e, err := t.text.Encode(text, tokenizer.EncodeOptions{AddSpecialTokens: special})
	return e.IDs, e.Offsets, err
}

// Decode turns ids back into text, special tokens included.
func (t *Tokenizer) Decode(ids []int32) string { return t.text.Decode(ids, false) }

// Special is the id of the token with a role, as in "eos_token" or "pad_token".
func (t *Tokenizer) Special(role string) (int32, bool) {
	name, ok := t.chat.SpecialTokens[role]
	if !ok {
		return 0, false
	}
	return t.text.ID(name)
}

// Render implements [Template]. A model without a chat template is an error.
func (t *Tokenizer) Render(messages []json.RawMessage, tools json.RawMessage, prompt bool) (string, error) {
	r := chat.Request{AddGenerationPrompt: prompt, SpecialTokens: t.chat.SpecialTokens}
	for i, m := range messages {
		v, err := chat.Decode(m)
		if err != nil {
			return "", fmt.Errorf("data: message %d: %w", i, err)
		}
		r.Messages = append(r.Messages, v)
	}
	if len(tools) > 0 {
		v, err := chat.Decode(tools)
		if err != nil {
			return "", fmt.Errorf("data: tools: %w", err)
		}
		r.Tools = v
	}
	template, err := t.chat.Template(r.Tools)
	if err != nil {
		return "", fmt.Errorf("data: %w", err)
	}
	r.Messages = chat.ParseArguments(r.Messages)
	return template.Render(r)
}
