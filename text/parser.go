package text

import (
	"fmt"
	"strings"

	"github.com/heftai/heft/internal/chat/toolcall"
	"github.com/heftai/heft/internal/layout"
)

// ParseOptions describe an answer before it is generated.
type ParseOptions struct {
	// Prompt is the prompt that the answer continues. Its end shows whether the answer starts
	// inside reasoning.
	Prompt string
	// InReasoning means that the answer continues the reasoning of the last message. It then starts
	// inside reasoning, whatever the end of the prompt shows.
	InReasoning bool
	// Tools are the tools of the conversation. Without tools the parser does not look for calls.
	Tools []Tool
}

func (o ParseOptions) internal() toolcall.Options {
	tools, err := toolList(o.Tools)
	if err != nil {
		tools, _ = toolList(withoutParameters(o.Tools)) // names always encode
	}
	return toolcall.Options{Prompt: o.Prompt, InReasoning: o.InReasoning, Tools: tools}
}

// An EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	ContentEvent       EventKind = iota // a piece of the content
	ReasoningEvent                      // a piece of the reasoning
	CallStartEvent                      // a call starts: Index, Name, and ID if it is known by then
	CallArgumentsEvent                  // a piece of the arguments of call Index
	CallEndEvent                        // call Index is complete, or broken
)

// An Event is one step of an answer. Calls do not overlap.
type Event struct {
	Kind EventKind
	// Text is the content, reasoning or arguments of the event. The joined arguments of a call are
	// a JSON object, whatever the model's notation.
	Text     string
	Index    int    // of the call, from 0
	Name, ID string // of the call; ID is "" if the model writes none
	// Broken means at CallEndEvent that the arguments are not a complete JSON object.
	Broken bool
}

// Parse splits a whole answer into content, reasoning and tool calls: a message of the role
// "assistant". The answer must be decoded with special tokens, because they may be markers. A call
// that is cut off or broken stays in the content as the model wrote it. If the model writes no ids
// of calls, Parse makes them. Tools whose parameters are not valid JSON count as tools without
// parameters.
func (c *Chat) Parse(answer string, o ParseOptions) Message {
	family := c.family()
	parsed := family.Parse(answer, o.internal())
	m := Message{Role: "assistant", Content: parsed.Content, Reasoning: parsed.Reasoning}
	for i, call := range parsed.Calls {
		if call.ID == "" {
			call.ID = family.NewCallID(call.Name, i)
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall(call))
	}
	return m
}

func withoutParameters(tools []Tool) []Tool {
	out := make([]Tool, len(tools))
	for i, t := range tools {
		out[i] = Tool{Name: t.Name}
	}
	return out
}

// A Parser splits an answer while it is generated. It is for use by one goroutine. [Chat.NewParser]
// makes one; the zero Parser finds content only.
type Parser struct {
	p      *toolcall.Parser
	events []Event
}

// NewParser returns a parser for one answer. Tools whose parameters are not valid JSON count as
// tools without parameters.
func (c *Chat) NewParser(o ParseOptions) *Parser {
	return &Parser{p: c.family().NewParser(o.internal())}
}

// Parses reports whether an answer may contain anything but content. If not, it does not need a
// parser.
func (c *Chat) Parses(o ParseOptions) bool { return c.family().Active(o.internal().Tools) }

// A Frame describes the parts of an answer around its content: reasoning and its markers.
type Frame struct {
	Inside      string // the marker that ends the reasoning in which the answer starts, or ""
	Open, Close string // markers of reasoning that the answer may start with, or ""
	Over        bool   // the prompt has already ended the reasoning
	Final       string // the text that starts the content, or ""
	Next        string // the text between the end of reasoning and Final, or ""
}

// Frame returns the frame of one answer. It is needed for a grammar that constrains the content.
func (c *Chat) Frame(o ParseOptions) Frame { return Frame(c.family().Frame(o.internal())) }

// A CallNotation is the notation in which the model writes calls:
//
//	Before NAME Infix ARGUMENTS { Between NAME Infix ARGUMENTS } After
//
// With Last the name and the arguments change places. With Again, Again and NAME follow ARGUMENTS.
type CallNotation struct {
	Before, Infix, After string
	Between              string         // "" if an answer has at most one call
	ID                   string         // placeholder in the other texts for an id of nine letters and digits
	Index                string         // placeholder in the other texts for the number of a call, from 0 on
	Arguments            *CallArguments // nil: a JSON object
	Last                 bool           // the name follows the arguments
	Again                string         // "" unless calls end with a repetition of their name
}

// ArgumentKind is a notation of arguments that are not a JSON object.
type ArgumentKind uint8

// The kinds.
const (
	TagArguments    ArgumentKind = iota + 1 // between tags: strings unchanged, other values as JSON
	PythonArguments                         // keyword arguments
	BareArguments                           // keys without quotes, strings between special quotes
	ValueArguments                          // keys without quotes, values in JSON
	TextArguments                           // a JSON object, encoded as a JSON string
)

// KeyMark is a placeholder in CallArguments.End and Stop for the key of an argument that is an
// element: </KEY>. NameMark is one in PlainEnds.Ends for the name of the function. CountMark is one
// in CallArguments.Next for the number of an argument, from 2 on.
const (
	KeyMark   = layout.KeyMark
	NameMark  = layout.NameMark
	CountMark = layout.CountMark
)

// PlainEnds describes the end of a value that has neither quotes nor a closing text. It ends before
// Next, a key and Key; before one of Ends; or before one of Lines that follows a line break and
// white space. Blanks may follow Next.
type PlainEnds struct {
	Next, Key   string // Key is "" if values have an end
	Close       string // precedes each of Ends, possibly with white space between
	Ends, Lines []string
	Follow      []string // the texts after values
	Counted     string   // follows the number after Next; "" if there is none
}

// CallArguments say how the model writes arguments that are not a JSON object:
//
//	First KEY Equals VALUE End { Next KEY Equals VALUE End }
//
// or Empty if there are no arguments. Before a string, EqualsText replaces Equals. With Flipped the
// value comes before the key.
type CallArguments struct {
	Kind               ArgumentKind
	First, Next, Empty string
	Equals, EqualsText string
	End                string
	Stop               string // the end of End; values between tags do not contain it
	Quote              string // the quotation marks around strings of BareArguments
	JSONText           bool   // strings between tags are JSON
	CDATA              bool   // a string between tags may be a CDATA section
	Flipped            bool   // a value comes before its key
	Plain              PlainEnds
}

// Named reports whether an argument is an element whose name is its key.
func (a *CallArguments) Named() bool { return strings.Contains(a.End, KeyMark) }

// CallNotation returns the notation in which the model writes calls, for a grammar of calls. ok is
// false if it is unknown.
func (c *Chat) CallNotation() (n CallNotation, ok bool) {
	if c.calls() == nil {
		return n, false
	}
	known := c.calls()
	n = CallNotation{Before: known.Before, Infix: known.Infix, After: known.After, Between: known.Between, ID: known.ID, Index: known.Index,
		Last: known.Last, Again: known.Again}
	if a := known.Arguments; a != nil {
		n.Arguments = &CallArguments{
			Kind: ArgumentKind(a.Kind), First: a.First, Next: a.Next, Empty: a.Empty, Equals: a.Equals, EqualsText: a.EqualsText,
			End: a.End, Stop: a.Stop, Quote: a.Quote, JSONText: a.JSONText, CDATA: a.CDATA, Flipped: a.Flipped, Plain: PlainEnds(a.Plain),
		}
	}
	return n, true
}

// Feed parses the next piece of the answer and returns the events that are certain so far. How an
// answer is cut into pieces only changes how events are cut. The events are valid until the next
// call.
func (p *Parser) Feed(piece string) []Event { return p.take(p.parser().Feed(piece)) }

// Finish ends the answer and returns the events that were held back. Do not use the parser
// afterwards.
func (p *Parser) Finish() []Event { return p.take(p.parser().Finish()) }

func (p *Parser) parser() *toolcall.Parser {
	if p.p == nil {
		p.p = noTemplates().family().NewParser(toolcall.Options{})
	}
	return p.p
}

func (p *Parser) take(events []toolcall.Event) []Event {
	p.events = p.events[:0]
	for _, e := range events {
		p.events = append(p.events, Event{Kind: EventKind(e.Kind), Text: e.Text, Index: e.Index, Name: e.Name, ID: e.ID, Broken: e.Broken})
	}
	return p.events
}

// ParsesCalls reports whether the model's notation has tool calls.
func (c *Chat) ParsesCalls() bool { return c.family().Calls() }

// Visible reports whether the parsed text must contain a special token, because it marks reasoning
// or a call.
func (c *Chat) Visible(token string) bool { return c.family().Visible(token) }

// NewCallID returns an id for the call with the given index in its message, in the form that the
// model's template accepts.
func (c *Chat) NewCallID(name string, index int) string { return c.family().NewCallID(name, index) }

// UnreadCalls reports whether the template supports tools, but no known notation parses the calls
// that it writes. Calls are then part of the content; use [Chat.WithParsers] to set a notation.
func (c *Chat) UnreadCalls() bool { return c.family().Unread() }

// ParserNames lists the notations that [Chat.WithParsers] accepts.
func ParserNames() []string { return toolcall.Names() }

// NoReasoning is the name of a notation of reasoning for [Chat.WithParsers] that leaves reasoning
// in the content.
const NoReasoning = "none"

// CheckParsers returns the error of [Chat.WithParsers] for these names, without a Chat.
func CheckParsers(calls, reasoning string) error {
	if calls != "" {
		if _, err := toolcall.ByName(calls); err != nil {
			return fmt.Errorf("text: tool calls: %w", err)
		}
	}
	if reasoning != "" && reasoning != NoReasoning {
		if _, err := toolcall.ByName(reasoning); err != nil {
			return fmt.Errorf("text: reasoning: %w", err)
		}
	}
	return nil
}

// WithParsers returns a copy of c that parses tool calls in the notation calls and reasoning in the
// notation reasoning. The names are those of [ParserNames], or vLLM's. "" keeps the notation of the
// chat template. [NoReasoning] leaves reasoning in the content. An unknown name is an error.
func (c *Chat) WithParsers(calls, reasoning string) (*Chat, error) {
	if calls == "" && reasoning == "" {
		return c, nil
	}
	if err := CheckParsers(calls, reasoning); err != nil {
		return nil, err
	}
	family := c.family()
	if calls != "" {
		family, _ = toolcall.ByName(calls) // CheckParsers accepted it
	}
	switch reasoning {
	case "":
	case NoReasoning:
		family = family.WithReasoning(nil)
	default:
		thoughts, _ := toolcall.ByName(reasoning)
		family = family.WithReasoning(thoughts)
	}
	return withFamily(c.set(), func() *toolcall.Family { return family }), nil
}
