package toolcall

import "strings"

// A Call is a complete tool call. Arguments is a JSON object.
type Call struct{ ID, Name, Arguments string }

// A Message is a complete answer.
type Message struct {
	Content, Reasoning string
	Calls              []Call
}

// Parse parses a complete answer. Broken and incomplete calls are part of Content as the model
// wrote them. IDs are the model's, or "".
func (f *Family) Parse(text string, o Options) Message {
	p := f.NewParser(o)
	var b builder
	for _, e := range p.Feed(text) {
		b.add(e, text)
	}
	for _, e := range p.Finish() {
		b.add(e, text)
	}
	b.message.Content, b.message.Reasoning = b.content.String(), b.reasoning.String()
	return b.message
}

// A builder builds a message from events.
type builder struct {
	message                       Message
	content, reasoning, arguments strings.Builder
	call                          Event // its start
}

func (b *builder) add(e Event, text string) {
	switch e.Kind {
	case Content:
		b.content.WriteString(e.Text)
	case Reasoning:
		b.reasoning.WriteString(e.Text)
	case CallStart:
		b.call = e
		b.arguments.Reset()
	case CallArguments:
		b.arguments.WriteString(e.Text)
	case CallEnd:
		if e.Broken {
			b.content.WriteString(text[b.call.Pos:e.Pos])
			return
		}
		b.message.Calls = append(b.message.Calls, Call{ID: e.ID, Name: b.call.Name, Arguments: b.arguments.String()})
	}
}
