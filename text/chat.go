package text

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/chat/toolcall"
)

// A Chat has a model's chat templates and special tokens, and the model's notations of reasoning
// and tool calls. It does not change and is safe for concurrent use. The zero Chat is that of a
// model without a template.
type Chat struct{ t *templates }

type templates struct {
	set    *chat.Set
	family func() *toolcall.Family // computed at first use
	calls  func() *toolcall.Notation
}

// noTemplates returns the templates of the zero Chat.
var noTemplates = sync.OnceValue(func() *templates { return newChat(&chat.Set{}, nil).t })

func (c *Chat) set() *chat.Set            { return c.templates().set }
func (c *Chat) family() *toolcall.Family  { return c.templates().family() }
func (c *Chat) calls() *toolcall.Notation { return c.templates().calls() }

func (c *Chat) templates() *templates {
	if c == nil || c.t == nil {
		return noTemplates()
	}
	return c.t
}

// withFamily makes a Chat whose notation of calls is learned at first use.
func withFamily(set *chat.Set, family func() *toolcall.Family) *Chat {
	return &Chat{&templates{set, family, sync.OnceValue(func() *toolcall.Notation { return family().Notation(set) })}}
}

func newChat(set *chat.Set, t *Tokenizer) *Chat {
	return withFamily(set, sync.OnceValue(func() *toolcall.Family {
		var special []string
		if t != nil {
			for _, a := range t.tokens().AddedTokens() {
				if a.Special {
					special = append(special, a.Content)
				}
			}
		}
		return toolcall.Find(set, special...)
	}))
}

// HasTemplate reports whether the model has a chat template. Without one the model cannot chat.
func (c *Chat) HasTemplate() bool { return len(c.set().Names()) > 0 }

// Err returns the error of a template that does not parse, or nil.
func (c *Chat) Err() error { return public(c.set().Broken()) }

// SpecialTokens returns the model's special tokens by role, such as bos_token, eos_token and
// pad_token. The caller may change the map.
func (c *Chat) SpecialTokens() map[string]string { return maps.Clone(c.set().SpecialTokens) }

// SpecialToken returns the special token of a role, such as "eos_token", or "" if the model has
// none.
func (c *Chat) SpecialToken(role string) string { return c.set().SpecialTokens[role] }

// Render renders a conversation as the model's prompt. Unless conv.Exact is set, it adapts the
// messages to the template, as servers do:
//
//   - arguments of tool calls become objects;
//   - an assistant's message without content gets the content "";
//   - the role developer becomes system if the template does not know it;
//   - system messages that the template leaves out join the one that it shows;
//   - function_call and the role function become a tool call and its result;
//   - text parts of a content are joined if the template does not support parts.
//
// A role that is no API's and that the template leaves out is an error. Render does not change the
// conversation. Errors are a [*TemplateError], or about JSON in the conversation.
func (c *Chat) Render(conv Conversation) (string, error) {
	prompt, _, err := c.RenderGenerations(conv)
	return prompt, err
}

// RenderGenerations is [Chat.Render] that also returns the half-open byte ranges of the prompt that
// the template marks as the assistant's with {% generation %} blocks. They are nil if the template
// marks none or marks them inside macros, and with ContinueFinalMessage.
func (c *Chat) RenderGenerations(conv Conversation) (string, [][2]int, error) {
	if !c.HasTemplate() {
		return "", nil, &TemplateError{Message: "the model has no chat template", Unusable: true}
	}
	r, err := conv.request()
	if err != nil {
		return "", nil, err
	}
	template, err := c.set().Template(r.Tools)
	if err != nil {
		return "", nil, public(err)
	}
	r.SpecialTokens = c.set().SpecialTokens
	if !conv.Exact {
		r = template.Adapt(r)
		if !takesParts.MatchString(template.Source()) {
			r.Messages = joinParts(r.Messages)
		}
		if role := template.Unshown(r); role != "" {
			return "", nil, &TemplateError{Message: fmt.Sprintf("the chat template does not know the role %q, and leaves its messages out", role)}
		}
	}
	prompt, generations, err := template.RenderGenerations(r)
	return prompt, generations, public(err)
}

// request decodes the conversation.
func (conv Conversation) request() (chat.Request, error) {
	r := chat.Request{AddGenerationPrompt: conv.AddGenerationPrompt, ContinueField: conv.ContinueFinalMessage, Now: conv.Now}
	r.Messages = make([]chat.Value, len(conv.Messages))
	for i, m := range conv.Messages {
		r.Messages[i] = m.object()
	}
	tools, err := toolList(conv.Tools)
	if err != nil {
		return r, err
	}
	r.Tools = tools
	if conv.Documents != nil {
		list := chat.NewList()
		for i, d := range conv.Documents {
			v, err := valueOf(d)
			if err != nil {
				return r, fmt.Errorf("text: document %d: %w", i, err)
			}
			list.Items = append(list.Items, v)
		}
		r.Documents = list
	}
	if conv.Arguments != nil {
		kwargs := chat.NewDict()
		for _, name := range slices.Sorted(maps.Keys(conv.Arguments)) {
			v, err := valueOf(conv.Arguments[name])
			if err != nil {
				return r, fmt.Errorf("text: argument %s: %w", name, err)
			}
			kwargs.Set(name, v)
		}
		return r, public(r.SetKwargs(kwargs))
	}
	return r, nil
}

// toolList returns an array of tools. It returns nil if tools is nil.
func toolList(tools []Tool) (chat.Value, error) {
	if tools == nil {
		return nil, nil
	}
	list := chat.NewList()
	for _, t := range tools {
		d, err := t.object()
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, d)
	}
	return list, nil
}

// takesParts matches a template's loop over the parts of a content. It matches neither prose about
// content nor its length.
var takesParts = regexp.MustCompile(`\{%[-+]?\s*for\s+\w+\s+in\s+\(?[\w.\[\]'"-]*content\b`)

// joinParts joins contents that are lists of text parts, with a line break between two parts, as
// other servers do. It does not change the given messages.
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
