package text

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/tokenizer"
)

var (
	// ErrTooSlow is returned by Encode if a pattern of tokenizer.json takes too many steps on a
	// text.
	ErrTooSlow = tokenizer.ErrTooSlow
	// ErrTooLong is returned by Encode if the normalizers of tokenizer.json make a text many times
	// longer.
	ErrTooLong = tokenizer.ErrTooLong
)

// A TooManyTokensError says that a text has more tokens than EncodeOptions.MaxTokens.
type TooManyTokensError struct {
	Max     int
	AtLeast int // minimum number of tokens of the text
	err     error
}

// Error implements error.
func (e *TooManyTokensError) Error() string {
	return fmt.Sprintf("text: encode: got at least %d tokens, want at most %d", e.AtLeast, e.Max)
}

// Unwrap returns the tokenizer's error.
func (e *TooManyTokensError) Unwrap() error { return e.err }

// A RetractedError means that an id changed text that a [Decoder] had already returned.
type RetractedError struct {
	ID      int32
	Sent    string // the last text that was returned
	Decoded string // the right text, including the text after it
	err     error
}

// Error implements error.
func (e *RetractedError) Error() string {
	return fmt.Sprintf("text: decode: token %d changes text that was returned: got %q, want %q", e.ID, e.Sent, e.Decoded)
}

// Unwrap returns the tokenizer's error.
func (e *RetractedError) Unwrap() error { return e.err }

// A TemplateError says why a conversation has no prompt: the model has no chat template, the
// template does not parse or fails, or it rejects the conversation.
type TemplateError struct {
	Line    int    // of the template; 0 if the error has no line
	Message string // may be shown to the client; the template's own message if it rejects the conversation
	// Unusable means that no conversation can be rendered: there is no template or it does not
	// parse.
	Unusable bool
	err      error
}

// Error implements error.
func (e *TemplateError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("text: chat template line %d: %s", e.Line, e.Message)
	}
	return "text: " + e.Message
}

// Unwrap returns the template engine's error.
func (e *TemplateError) Unwrap() error { return e.err }

// public converts errors of the internal packages to those of this package.
func public(err error) error {
	if err == nil {
		return nil
	}
	var many *tokenizer.TooManyError
	var retracted *tokenizer.RetractedError
	var template *chat.Error
	switch {
	case errors.As(err, &many):
		return &TooManyTokensError{many.Max, many.AtLeast, err}
	case errors.As(err, &retracted):
		return &RetractedError{retracted.ID, retracted.Sent, retracted.Decoded, err}
	case errors.As(err, &template):
		return &TemplateError{template.Line, template.Message, template.Kind == chat.KindSyntax, err}
	}
	return err
}
