package repair

import (
	"container/list"
	"sync"
)

// cache holds the bodies that were of use last, up to max bytes.
type cache struct {
	max int

	mu    sync.Mutex
	size  int
	order list.List // of *cached, the one that was of use last in front
	at    map[*record]*list.Element
}

type cached struct {
	r *record
	*body
}

// get gives the body of r, nil when it is not there.
func (c *cache) get(r *record) *body {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[r]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).body
}

// put holds the body of r, unless it is larger than all that may be held.
func (c *cache) put(r *record, b *body) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.size > c.max || c.at[r] != nil {
		return
	}
	if c.at == nil {
		c.at = map[*record]*list.Element{}
	}
	c.at[r] = c.order.PushFront(&cached{r, b})
	for c.size += b.size; c.size > c.max; {
		c.remove(c.order.Back())
	}
}

// drop lets the body of r go.
func (c *cache) drop(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[r]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) {
	it := c.order.Remove(e).(*cached)
	delete(c.at, it.r)
	c.size -= it.size
}
