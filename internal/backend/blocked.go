package backend

import "github.com/heftai/heft/internal/tensor"

// Blocked is implemented by a Backend that supports attention to blocks of positions. An indexer
// of Heads heads selects the blocks: a row with more than Count blocks attends to Count of them
// with each head. Equal groups of adjacent query heads share a head of the indexer. The result of
// a row depends only on its own position and visible keys.
type Blocked interface {
	// ChooseBlocks sets row i of chosen, [n, Heads·Count], to the blocks to which row i of q
	// attends, for each head in ascending order, as bits of uint32. It does not change rows with
	// at most Count blocks. A block is Size positions. Its score for a head is the largest
	// product of the head's query with the key of a visible position in it, summed in ascending
	// order of the channels. The Local blocks that end with the row's own are always selected. Of
	// equal scores the lower block is selected. q is [n, Heads·Dim], and keys.K has one head of
	// Dim channels.
	ChooseBlocks(chosen, q tensor.Tensor, keys KV, spans []Span, b BlockArgs)
	// AttentionBlocks is Attention in which each row attends to the blocks that ChooseBlocks has
	// set. If all earlier positions are at most Count blocks, or b.Most() positions with Tail, it
	// attends to all of them. a has a multiple of b.Heads query heads, and no window, chunk,
	// softcap, slopes or sinks.
	AttentionBlocks(dst, q, chosen tensor.Tensor, kv KV, spans []Span, a AttentionArgs, b BlockArgs)
}

// BlockedGradients has the backward operation of AttentionBlocks. The selection of blocks has
// none.
type BlockedGradients interface {
	Averaged
	Indexed
	// AttentionBlocksGrad is AttentionGrad in which each row attends to the blocks of
	// AttentionBlocks. For AttentionChosen, positions are blocks of size one. With entries it is
	// the backward operation of AttentionEntries.
	AttentionBlocksGrad(dq tensor.Tensor, dkv KV, dy, q tensor.Tensor, kv KV, spans []Span, a AttentionArgs, b ChosenBlocks)
}

// ChosenBlocks holds blocks that ChooseBlocks has selected, or entries that ChooseEntries has.
type ChosenBlocks struct {
	BlockArgs
	Entries EntryArgs // with a Rate if entries are selected; Chosen may then be absent, and BlockArgs is not used
	Chosen  tensor.Tensor
	Sinks   tensor.Tensor // the gradient of the sinks, or absent
}

// BlockArgs holds the parameters of an indexer of blocks.
type BlockArgs struct {
	Heads, Dim int
	Size       int // positions of a block
	Count      int // number of blocks to select
	Local      int // of these, the ones that end with the row's own
	// Tail means that a row also attends to the positions after its last whole block, and that
	// only whole blocks are selected.
	Tail bool
}

// Most returns the maximum number of positions to which a row attends.
func (a *BlockArgs) Most() int {
	if a.Tail {
		return (a.Count+1)*a.Size - 1
	}
	return a.Count * a.Size
}

// Averaged is implemented by a Backend that supports attention to blocks which are selected by
// the averages of their keys, like entries of [Compressed].
type Averaged interface {
	Blocked
	EntryChooser
	// AverageKeys sets row i of dst to the average of the keys of the size positions that end
	// with the row's, if its position is the last of a block, and to 0 otherwise. keys.K has one
	// head, as wide as dst.
	AverageKeys(dst tensor.Tensor, keys KV, spans []Span, size int)
}
