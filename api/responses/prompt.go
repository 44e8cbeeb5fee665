package responses

import (
	"context"
	"errors"
	"sort"
	"strings"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// renderCopies is the number of copies of a conversation's text that are in memory while it is
// rendered and encoded.
const renderCopies = 4

// converse makes the prompt of q from its instructions, the items of earlier responses and its own
// items.
func (s *Server) converse(ctx context.Context, q *request, earlier []*inputItem) error {
	var t transcript
	for _, item := range earlier {
		t.add(item) // it was checked when it was stored
	}
	for i, item := range q.items {
		if why := t.add(item); why != "" {
			return wire.Invalidf(pathOf(i, "call_id"), "%s", why)
		}
	}
	t.flush()
	c := &q.conversation
	c.Messages = instructed(q.response.Instructions, t.messages)
	c.AddGenerationPrompt = c.ContinueFinalMessage == ""
	if len(c.Messages) == 0 {
		return wire.Invalidf("input", "Invalid value for 'input': there must be at least one message.")
	}
	bytes, fit := 0, q.model.NewLengthCheck("input")
	for i := range c.Messages {
		bytes += len(c.Messages[i].Content) + len(c.Messages[i].Reasoning)
		if q.response.Truncation == "auto" {
			continue
		}
		if err := fit.Add(c.Messages[i].Content); err != nil {
			return err
		}
	}
	if err := wire.ClaimOf(ctx).Work(renderCopies * bytes); err != nil {
		return err
	}
	if q.response.Truncation == "auto" {
		return q.truncated(ctx)
	}
	return inputError(q.model.Converse(ctx, *c, &q.Request))
}

// instructed adds instructions before a conversation. If the conversation starts with a system
// message, they are joined, because many templates accept only one.
func instructed(instructions *string, messages []text.Message) []text.Message {
	if instructions == nil || *instructions == "" {
		return messages
	}
	first := text.System(*instructions)
	if len(messages) > 0 && messages[0].Role != "user" && messages[0].Role != "assistant" && messages[0].Role != "tool" {
		if messages[0].Content != "" {
			first.Content += "\n\n" + messages[0].Content
		}
		messages = messages[1:]
	}
	return append([]text.Message{first}, messages...)
}

// truncated makes the prompt of the conversation. If it does not fit into the context with the
// answer, it drops the oldest turns. System messages stay.
func (q *request) truncated(ctx context.Context) error {
	all := q.conversation.Messages
	begins := 0
	for begins < len(all) && (all[begins].Role == "system" || all[begins].Role == "developer") {
		begins++
	}
	var turns []int // where turns start
	for i := begins; i < len(all); i++ {
		if all[i].Role == "user" || i == begins {
			turns = append(turns, i)
		}
	}
	var failed error
	drop := func(k int) bool { // drops the first k turns
		c := q.conversation
		c.Messages = append(all[:begins:begins], all[turns[k]:]...)
		failed = inputError(q.model.Converse(ctx, c, &q.Request))
		return failed == nil && len(q.Prompt)+max(q.MaxTokens, 1) <= q.model.Limit()
	}
	tooLong := func() bool {
		var own *wire.Error
		return failed == nil || errors.As(failed, &own) && own.Kind == wire.TooLong
	}
	if len(turns) < 2 || drop(0) || !tooLong() {
		if len(turns) < 2 {
			return inputError(q.model.Converse(ctx, q.conversation, &q.Request))
		}
		return failed
	}
	k := 1 + sort.Search(len(turns)-2, func(i int) bool { return drop(i + 1) })
	drop(k)
	return failed
}

// inputError renames the fields in errors about messages and tools from those of chat completions
// to those of this API.
func inputError(err error) error {
	var own *wire.Error
	if err == nil || !errors.As(err, &own) {
		return err
	}
	e := *own
	if e.Field == "messages" {
		e.Field = "input"
		e.Message = strings.ReplaceAll(e.Message, "'messages'", "'input'")
	}
	if strings.HasPrefix(e.Field, "tools[") {
		e.Field = strings.Replace(e.Field, ".function.", ".", 1)
		e.Message = strings.Replace(e.Message, ".function.", ".", 1)
	}
	return &e
}
