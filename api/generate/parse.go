package generate

import "github.com/heftai/heft/text"

// Call is new output of one tool call. The first of each call has its name and an
// id, of the model or made here; the calls of an answer come one after the other.
type Call struct {
	Index     int    // among the calls of the answer
	ID, Name  string // in the first; ID also in the last, where the model gave one that late
	Custom    bool   // the call is of a [Custom] tool
	Arguments string // joined, a JSON object, or the text for a custom tool
	Ended     bool   // this is the last
	Broken    bool   // at the end: the arguments are no whole JSON object
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
			d.Text += c.stop.flush() // no stop string reaches across a call
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

// call is where d has what call i, the open one, has gained.
func (c *choice) call(d *Delta, i int) *Call {
	if n := len(d.Calls); n == 0 || d.Calls[n-1].Index != i {
		d.Calls = append(d.Calls, Call{Index: i, Custom: c.input != nil})
	}
	return &d.Calls[len(d.Calls)-1]
}

// thought counts the tokens that became reasoning. A token that has shown nothing yet goes
// with what shows next.
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
