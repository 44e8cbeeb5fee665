package generate

import "github.com/heftai/heft/text"

// Call is new output of one tool call. The first delta of a call has its name and an id, which is
// the model's or made by the server. The calls of an answer follow one after another.
type Call struct {
	Index     int    // position among the calls of the answer
	ID, Name  string // in the first delta; ID also in the last, if the model wrote it late
	Custom    bool   // the call is of a [Custom] tool
	Arguments string // joined, a JSON object, or the text for a custom tool
	Ended     bool   // this is the call's last delta
	Broken    bool   // at the end: the arguments are no complete JSON object
}

// parse adds the parser's events to d and reports whether a stop string has ended the answer.
func (c *choice) parse(d *Delta, events []text.Event) bool {
	for _, e := range events {
		switch e.Kind {
		case text.ContentEvent:
			if c.say(d, e.Text) {
				return true
			}
		case text.ReasoningEvent:
			d.Reasoning += e.Text
		case text.CallStartEvent:
			d.Text += c.stop.flush() // no stop string spans a call
			id := e.ID
			if id == "" {
				id = c.model.Chat.NewCallID(e.Name, e.Index)
			}
			_, custom := c.custom[e.Name]
			if c.input = nil; custom {
				c.input = &inputReader{}
			}
			d.Calls = append(d.Calls, Call{Index: e.Index, ID: id, Name: e.Name, Custom: custom})
		case text.CallArgumentsEvent:
			arguments := e.Text
			if c.input != nil {
				arguments = c.input.read(arguments)
			}
			c.call(d, e.Index).Arguments += arguments
		case text.CallEndEvent:
			call := c.call(d, e.Index)
			if c.input != nil {
				call.Arguments += c.input.end()
			}
			call.Ended, call.Broken = true, e.Broken
			if e.ID != "" {
				call.ID = e.ID
			}
		}
	}
	return false
}

// call returns the entry of d for call i, which is open.
func (c *choice) call(d *Delta, i int) *Call {
	if n := len(d.Calls); n == 0 || d.Calls[n-1].Index != i {
		d.Calls = append(d.Calls, Call{Index: i, Custom: c.input != nil})
	}
	return &d.Calls[len(d.Calls)-1]
}

// thought returns the number of tokens that became reasoning. A token that has shown no text yet
// counts with the next text.
func (c *choice) thought(d *Delta) int {
	c.unseen += len(d.Tokens)
	n := 0
	switch {
	case d.Reasoning != "":
		n, c.unseen = c.unseen, 0
	case d.Text != "" || len(d.Calls) > 0:
		c.unseen = 0
	}
	return n
}
