package strategies

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/bench"
)

// Redis keeps the lock as a key with a time to live.
type Redis struct{}

func (Redis) service() lockService {
	return lockService{
		name: "redis", port: "6379", dial: dialRedis,
		start: "make services, apt-get install redis-server, or docker run -p 6379:6379 redis",
	}
}

// Info describes the strategy.
func (r Redis) Info() bench.StrategyInfo {
	return r.service().info(bench.StrategyInfo{
		Summary:  "a key in Redis, set if absent, with a time to live, around none",
		How:      "SET NX PX with a value of the holder's own, and a script that deletes the key only if it still holds that value. Nothing renews the key: it goes after --ttl, whoever believes to hold it. A release is published, and the first who waits in each process tries again; nobody is promised a turn. The SQL is that of none.",
		Use:      "where Redis is there anyway and a lost lock costs no more than doing the work twice; with fencing where it must be right",
		Mistakes: "deleting the key without looking whose it is; a time to live below the longest pause; believing that a majority of five Redis servers (Redlock) makes a lapsed lock harmless",
	})
}

// Bind writes the SQL.
func (r Redis) Bind(b bench.Binding) (bench.Discipline, error) { return bindLeased(b, r.service()) }

// silenceRedis keeps the client from writing to standard error what it returns as an error anyway. Its logger is one for the process.
var silenceRedis = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// redisTake sets the lock if it is free and counts the row's fencing token up, in one step; else it tells how long the lock will last.
var redisTake = redis.NewScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {1, redis.call('HINCRBY', KEYS[2], ARGV[3], 1)} end
return {0, redis.call('PTTL', KEYS[1])}`)

// redisGive deletes the lock if it is still the holder's, and says so to those who wait.
var redisGive = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return redis.call('PUBLISH', KEYS[1], '')`)

// redisClient is the connection of a trial.
type redisClient struct {
	*redis.Client
	prefix   string // of all keys; the braces keep them on one node of a cluster
	id       string // no other client's
	ttl      time.Duration
	releases *redis.PubSub
	over     sync.WaitGroup
	sessions atomic.Int64

	mu    sync.Mutex
	lines map[string][]chan struct{} // those who wait in this process, by key
}

func dialRedis(ctx context.Context, address string, o leaseOptions) (lockClient, time.Duration, error) {
	silenceRedis()
	var d net.Dialer
	probe, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, 0, err // from the client it would come after five tries, and one more outlives the client
	}
	_ = probe.Close()
	c := &redisClient{ttl: o.ttl, id: rand.Text(), prefix: "lockbench:{" + o.Name + "}:", lines: map[string][]chan struct{}{}}
	c.Client = redis.NewClient(&redis.Options{
		Addr: address, PoolSize: o.Sessions + 1, MinIdleConns: o.Sessions,
		MaxRetries: -1, // an answer that is lost must not be asked for again: the lock may have been had
	})
	if err = c.Ping(ctx).Err(); err == nil {
		c.releases = c.PSubscribe(ctx, c.prefix+"lock:*")
		if _, err = c.releases.Receive(ctx); err == nil {
			c.over.Go(c.listen)
		}
	}
	if err != nil {
		c.close()
		return nil, 0, err
	}
	return c, o.ttl, nil
}

// listen wakes the first in line for each lock that is released.
func (c *redisClient) listen() {
	for m := range c.releases.Channel() {
		c.wake(m.Channel)
	}
}

func (c *redisClient) wake(lock string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line := c.lines[lock]; len(line) > 0 {
		select {
		case line[0] <- struct{}{}:
		default: // it has not yet acted on the last one
		}
	}
}

// join stands in line for a lock; leave must be called.
func (c *redisClient) join(lock string) (woken <-chan struct{}, leave func(got bool)) {
	me := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[lock] = append(c.lines[lock], me)
	return me, func(got bool) {
		c.mu.Lock()
		line := c.lines[lock]
		for i := range line {
			if line[i] == me {
				line = append(line[:i], line[i+1:]...)
				break
			}
		}
		if c.lines[lock] = line; len(line) == 0 {
			delete(c.lines, lock)
		}
		c.mu.Unlock()
		if !got && len(me) > 0 { // it was woken, and goes: the turn is the next one's
			c.wake(lock)
		}
	}
}

func (c *redisClient) lockKey(key string) string { return c.prefix + "lock:" + key }
func (c *redisClient) tokens() string            { return c.prefix + "tokens" }

func (c *redisClient) session(context.Context) (lockSession, error) {
	return &redisSession{c: c, id: c.sessions.Add(1)}, nil
}

// sweep looks at the lock of every row that was ever locked.
func (c *redisClient) sweep(ctx context.Context) (int64, error) {
	rows, err := c.HKeys(ctx, c.tokens()).Result()
	if err != nil {
		return 0, err
	}
	var left int64
	for _, row := range rows {
		n, err := c.Del(ctx, c.lockKey(row)).Result()
		if err != nil {
			return left, err
		}
		left += n
	}
	return left, c.Del(ctx, c.tokens()).Err()
}

func (c *redisClient) close() {
	if c.releases != nil {
		_ = c.releases.Close()
	}
	c.over.Wait()
	_ = c.Client.Close()
}

// redisSession is one holder after the other.
type redisSession struct {
	fixed
	c    *redisClient
	id   int64
	took int64
}

func (s *redisSession) usable() bool          { return true }
func (s *redisSession) close(context.Context) {}

func (s *redisSession) acquire(ctx context.Context, row int64) (int64, func(context.Context), error) {
	c, key := s.c, strconv.FormatInt(row, 10)
	lock := c.lockKey(key)
	s.took++
	mine := fmt.Sprintf("%s-%d-%d", c.id, s.id, s.took)
	woken, leave := c.join(lock) // before the lock is tried, or a release in between would wake nobody
	got := false
	defer func() { leave(got) }()
	for {
		answer, err := redisTake.Run(ctx, c, []string{lock, c.tokens()}, mine, c.ttl.Milliseconds(), key).Int64Slice()
		if err != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			s.give(after, lock, mine) // it may have been had: only the answer is missing
			return 0, nil, err
		}
		if got = answer[0] == 1; got {
			return answer[1], func(ctx context.Context) { s.give(ctx, lock, mine) }, nil
		}
		lapses := time.NewTimer(max(time.Millisecond, time.Duration(answer[1])*time.Millisecond))
		select {
		case <-woken:
		case <-lapses.C:
		case <-ctx.Done():
			lapses.Stop()
			return 0, nil, ctx.Err()
		}
		lapses.Stop()
	}
}

// give gives the lock back if it is still the holder's. Should the service not answer, the lock goes by itself.
func (s *redisSession) give(ctx context.Context, lock, mine string) {
	_ = redisGive.Run(ctx, s.c, []string{lock}, mine).Err()
}
