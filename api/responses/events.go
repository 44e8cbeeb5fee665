package responses

import "encoding/json"

// Events are sent under the name that is also their type. sequence_number counts them from 0.

// numbered is an event whose name and number are set when it is sent.
type numbered interface{ number(name string, n int) }

// head has the first fields of each event.
type head struct {
	Type     string `json:"type"`
	Sequence int    `json:"sequence_number"`
}

func (h *head) number(name string, n int) { h.Type, h.Sequence = name, n }

// lifecycleEvent is response.created, in_progress, completed, incomplete or failed.
type lifecycleEvent struct {
	head
	Response *response `json:"response"`
}

// itemAdded is response.output_item.added or done.
type itemAdded struct {
	head
	OutputIndex int         `json:"output_index"`
	Item        *outputItem `json:"item"`
}

// itemEvent has the fields of events about an item.
type itemEvent struct {
	head
	ItemID      string `json:"item_id"`
	OutputIndex int    `json:"output_index"`
}

// partEvent has the fields of events about a part of an item. Items of this server have one part.
type partEvent struct {
	itemEvent
	ContentIndex int `json:"content_index"`
}

// at returns the open item.
func (b *builder) at() itemEvent {
	return itemEvent{ItemID: b.item.ID, OutputIndex: len(b.r.Output) - 1}
}

func (b *builder) atPart() partEvent { return partEvent{itemEvent: b.at()} }

// partAdded is response.content_part.added or done.
type partAdded struct {
	partEvent
	Part part `json:"part"`
}

type textDelta struct {
	partEvent
	Delta    string            `json:"delta"`
	LogProbs []json.RawMessage `json:"logprobs"`
}

type textDone struct {
	partEvent
	Text     string            `json:"text"`
	LogProbs []json.RawMessage `json:"logprobs"`
}

type reasoningDelta struct {
	partEvent
	Delta string `json:"delta"`
}

type reasoningDone struct {
	partEvent
	Text string `json:"text"`
}

type argumentsDelta struct {
	itemEvent
	Delta string `json:"delta"`
}

type argumentsDone struct {
	itemEvent
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type inputDelta struct {
	itemEvent
	Delta string `json:"delta"`
}

type inputDone struct {
	itemEvent
	Input string `json:"input"`
}

// errorEvent says why a response failed. It precedes response.failed.
type errorEvent struct {
	head
	Code    *string `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}
