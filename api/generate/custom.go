package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/lark"
	"github.com/heftai/heft/internal/jsonscan"
	"github.com/heftai/heft/text"
)

// A Custom tool takes a text in place of arguments. The model sees a function with one string
// argument called input. The pieces of its calls ([Call]) contain the text of that string.
type Custom struct {
	Name, Description string
	// Syntax is "lark" or "regex" if Definition restricts the text, or "" for any text.
	Syntax, Definition string
	// Field is the client's name of the definition, for errors; "" means "definition".
	Field string
}

// customInput is the name of the tool's only argument.
const customInput = "input"

// CustomTool adds a custom tool to the tools that the model sees. Errors are of type *wire.Error.
func (c *Conversation) CustomTool(t Custom) error {
	expression, hint := "", ""
	var nested *lark.Error
	switch t.Syntax {
	case "":
	case "regex":
		expression, hint = t.Definition, "A text that matches this regular expression as a whole: "
	case "lark":
		var err error
		var own *lark.Error
		if expression, err = lark.Expression(t.Definition); errors.As(err, &own) && own.Nested {
			nested = own
		} else if err != nil {
			why := strings.TrimPrefix(err.Error(), "lark: ")
			return &wire.Error{Kind: wire.Invalid, Field: t.Field, Err: err, Message: fmt.Sprintf("'%s' cannot be enforced: %s.", t.Field, why)}
		}
		hint = "A text that matches the rule start of this grammar in Lark's notation:\n"
	}
	shown := inputSchema(hint+t.Definition, "")
	if c.custom == nil {
		c.custom = map[string]customTool{}
	}
	tool := customTool{schema: inputSchema("", expression), held: t.Syntax != "", field: t.Field}
	if nested != nil {
		tool.nested, tool.definition = nested, t.Definition
	}
	c.custom[t.Name] = tool
	c.Tools = append(c.Tools, text.Tool{Name: t.Name, Description: t.Description, Parameters: shown})
	return nil
}

// customTool describes a custom tool of a conversation.
type customTool struct {
	schema []byte // of its arguments, enforced by the grammar
	held   bool   // the text must match a definition
	field  string // the request's field of the definition

	// definition is set only for a grammar that nests, which a schema cannot express.
	definition string
	nested     error // the error if the notation cannot hold it
}

// arguments returns a position that reads the arguments of a call, if they are JSON, then next.
func (t *customTool) arguments(b *grammar.Builder, next grammar.Pos) (grammar.Pos, error) {
	space := func(next grammar.Pos) grammar.Pos {
		return b.Split(next, b.Literal(" ", next))
	}
	next = b.Literal(`"`, space(b.Literal("}", next)))
	at, err := b.QuotedLines(func() (grammar.Pos, error) { return lark.Append(b, t.definition, next) })
	return b.Literal("{", space(b.Literal(`"`+customInput+`":`, space(b.Literal(`"`, at))))), err
}

// inputSchema returns the schema of arguments with one text that matches expression. If expression
// is "", any text is valid.
func inputSchema(description, expression string) json.RawMessage {
	type property struct {
		Type        string `json:"type"`
		Description string `json:"description,omitzero"`
		Pattern     string `json:"pattern,omitzero"`
	}
	p := property{Type: "string", Description: description}
	if rest, fold := strings.CutPrefix(expression, "(?i)"); fold {
		p.Pattern = "(?i)^(?:" + rest + ")$"
	} else if expression != "" {
		p.Pattern = "^(?:" + expression + ")$"
	}
	schema, _ := json.Marshal(struct { // strings always marshal
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
		Additional bool                `json:"additionalProperties"`
	}{"object", map[string]property{customInput: p}, []string{customInput}, false})
	return schema
}

// CustomArguments returns the arguments of a custom tool's call as the model writes them for a
// given text.
func CustomArguments(input string) string {
	var b strings.Builder
	_ = wire.Encode(&b, map[string]string{customInput: input}) // strings always encode
	return strings.TrimSuffix(b.String(), "\n")
}

// refusal adds the name of the definition's field to an error about the arguments of a custom tool.
func (t *customTool) refusal(err error) error {
	var own *wire.Error
	if !t.held || !errors.As(err, &own) {
		return err
	}
	why := own.Message
	if errors.Is(err, errNested) {
		why = strings.TrimPrefix(t.nested.Error(), "lark: ") + ", which only arguments in JSON can hold. The model writes others."
	}
	if _, behind, ok := strings.Cut(why, " cannot be enforced: "); ok {
		why = strings.TrimPrefix(behind, "lark: ")
	}
	return &wire.Error{Kind: own.Kind, Field: t.field, Err: err, Message: fmt.Sprintf("'%s' cannot be enforced: %s", t.field, why)}
}

// errNested is the error of a grammar that nests in a notation of calls that cannot hold it.
var errNested = errors.New("generate: the notation of calls cannot hold the grammar")

// beginInput matches the start of the arguments before the text.
var beginInput = regexp.MustCompile(`^\s*\{\s*"` + customInput + `"\s*:\s*"`)

// An inputReader extracts the text from the streamed arguments of a custom tool's call. If the
// arguments have another form, they are the text themselves.
type inputReader struct {
	head  string // arguments before the text; all of them if they have another form
	rest  string // the start of an incomplete escape
	begun bool
	ended bool
}

// read returns the new part of the text.
func (r *inputReader) read(arguments string) string {
	if !r.begun {
		r.head += arguments
		at := beginInput.FindStringIndex(r.head)
		if at == nil {
			return ""
		}
		r.begun, arguments, r.head = true, r.head[at[1]:], ""
	}
	var b strings.Builder
	s := r.rest + arguments
	for r.rest = ""; s != "" && !r.ended; {
		n := strings.IndexAny(s, `"\`)
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		if s = s[n:]; s == "" {
			break
		}
		c, n := unescape(s)
		if n == 0 {
			r.rest = s
			break
		}
		if r.ended = s[0] == '"'; !r.ended {
			b.WriteRune(c)
		}
		s = s[n:]
	}
	return b.String()
}

// end returns the text of arguments that have another form than those of a custom tool.
func (r *inputReader) end() string {
	if r.begun {
		return ""
	}
	return r.head
}

// unescape decodes a JSON escape or a quote. n is 0 if s has only a part of it. An invalid escape
// stands for itself.
func unescape(s string) (c rune, n int) {
	const unit = len(`\u0000`)
	switch {
	case s[0] == '"':
		return 0, 1
	case len(s) < 2 || s[1] == 'u' && len(s) < unit:
		return 0, 0
	}
	c, n, kind := jsonscan.Unescape(s, 0)
	switch kind {
	case jsonscan.None:
		return c, n
	case jsonscan.UnknownEscape:
		c, n = utf8.DecodeRuneInString(s[1:])
		return c, 1 + n
	case jsonscan.LoneHigh:
		if rest := s[unit:]; len(rest) < unit && strings.HasPrefix(`\u`, rest[:min(len(rest), 2)]) {
			return 0, 0 // the other half may follow
		}
	}
	return utf8.RuneError, unit
}
