package chat

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/chat/jinja"
)

// continueTag marks the end of the text to continue. Its last space shows whether the template
// trims the text.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// continuation is a final message that the model continues. text is the end of the message.
type continuation struct{ text string }

// continueLast appends the tag to the field of the last message and replaces the message in
// messages. source is the template's text, which must mention the field.
func continueLast(messages []*Dict, field, source string) (*continuation, error) {
	last := messages[len(messages)-1].Clone()
	messages[len(messages)-1] = last
	final, ok := last.Get(field)
	if !ok || final == nil {
		return nil, invalid(`continue_final_message is set but the final message has no "%s" to continue!`, field)
	}
	fields := []string{field}
	if slices.Contains(reasoningFields[:], field) {
		fields = nil
		for _, name := range reasoningFields {
			if v, ok := last.Get(name); ok && sameText(v, final) {
				fields = append(fields, name)
			}
		}
	}
	mentioned := func(name string) bool { return strings.Contains(source, name) }
	if !slices.ContainsFunc(fields, mentioned) {
		return nil, invalid(`continue_final_message is set to "%s" but this is not an accepted field in the chat_template`, field)
	}
	switch final := final.(type) {
	case string:
		for _, name := range fields {
			last.Set(name, final+continueTag)
		}
		return &continuation{final}, nil
	case *List:
		return continueParts(last, field, final)
	}
	return nil, invalid(`continue_final_message: the "%s" of the final message must be text or a list of parts`, field)
}

func sameText(a, b Value) bool {
	s, ok := a.(string)
	t, same := b.(string)
	return ok && same && s == t
}

// continueParts appends the tag to the last part that has a text.
func continueParts(last *Dict, field string, parts *List) (*continuation, error) {
	for i, v := range slices.Backward(parts.Items) {
		part, ok := v.(*Dict)
		if !ok {
			return nil, invalid("continue_final_message: part %d of the final message must be an object", i)
		}
		text, ok := part.Get("text")
		if !ok {
			continue
		}
		s, ok := text.(string)
		if !ok {
			return nil, invalid("continue_final_message: the text of part %d of the final message must be a string", i)
		}
		tagged := part.Clone()
		tagged.Set("text", s+continueTag)
		items := slices.Clone(parts.Items)
		items[i] = tagged
		last.Set(field, &List{Items: items})
		return &continuation{s}, nil
	}
	return nil, invalid("continue_final_message is set but we could not find any text to continue in the final message!")
}

// cut ends the prompt at the end of the final message. If the tag has lost its space, the template
// trims texts, and cut trims the end of the prompt, too.
func (c *continuation) cut(prompt string) (string, error) {
	text := strings.TrimFunc(c.text, jinja.IsSpace)
	at := strings.LastIndex(prompt, strings.TrimSpace(continueTag))
	if at < 0 || !strings.Contains(prompt, text) {
		return "", invalid("continue_final_message is set but the final message does not appear in the chat after " +
			"applying the chat template! This can happen if the chat template deletes portions of the final message. " +
			"Please verify the chat template and final message in your chat to ensure they are compatible.")
	}
	if strings.HasPrefix(prompt[at:], continueTag) {
		return prompt[:at], nil
	}
	return strings.TrimRightFunc(prompt[:at], jinja.IsSpace), nil
}
