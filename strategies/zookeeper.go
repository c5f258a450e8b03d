package strategies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockbench/lockbench/bench"
)

// ZooKeeper keeps the line for a lock as nodes that go with the sessions of those who wait.
type ZooKeeper struct{}

func (ZooKeeper) service() lockService {
	return lockService{
		name: "zookeeper", port: "2181", dial: dialZooKeeper,
		start: "make services, apt-get install zookeeperd, or docker run -p 2181:2181 zookeeper",
	}
}

// Info describes the strategy.
func (z ZooKeeper) Info() bench.StrategyInfo {
	return z.service().info(bench.StrategyInfo{
		Summary:  "a line of ephemeral sequential nodes in ZooKeeper, around none",
		How:      "Whoever wants the lock creates an ephemeral sequential node and holds the lock when no node has a lower number. He watches the node just before his own and no other, so that a release wakes one user. The nodes go with their session, which lapses when the client is silent for the session's time-out (--ttl, within the server's bounds). With fencing the token is the transaction in which the node was created. The SQL is that of none.",
		Use:      "where users are to be served in the order in which they came, and ZooKeeper is there anyway; with fencing where it must be right",
		Mistakes: "watching the parent, so that a release wakes everybody; leaving the node behind when giving up; taking the client's silence about a lost session for holding the lock",
	})
}

// Bind writes the SQL.
func (z ZooKeeper) Bind(b bench.Binding) (bench.Discipline, error) { return bindLeased(b, z.service()) }

// zkClient makes the sessions of a trial. It has one of its own, for sweeping.
type zkClient struct {
	address string
	o       leaseOptions
	own     *zkSession
}

func dialZooKeeper(ctx context.Context, address string, o leaseOptions) (lockClient, time.Duration, error) {
	c := &zkClient{address: address, o: o}
	var err error
	if c.own, err = c.connect(ctx); err != nil {
		return nil, 0, err
	}
	return c, c.own.granted, nil
}

func (c *zkClient) session(ctx context.Context) (lockSession, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return nil, err // not a nil *zkSession in an interface
	}
	return s, nil
}

// connect opens a session and waits until it stands.
func (c *zkClient) connect(ctx context.Context) (*zkSession, error) {
	s := &zkSession{root: c.root(), fencing: c.o.fencing, gone: make(chan struct{})}
	granted, refused := make(zkLog, 1), make(chan error, 1)
	expire := sync.OnceFunc(func() { close(s.gone) })
	var err error
	s.conn, s.events, err = zk.Connect([]string{c.address}, c.o.ttl, zk.WithLogger(granted),
		zk.WithDialer(func(network, address string, patience time.Duration) (net.Conn, error) {
			conn, err := net.DialTimeout(network, address, patience)
			s.await()
			if err != nil {
				select {
				case refused <- err:
				default:
				}
				return nil, err
			}
			return s.over(conn), nil
		}),
		zk.WithEventCallback(func(e zk.Event) {
			if e.State == zk.StateExpired {
				expire()
			}
		}))
	if err != nil {
		return nil, err
	}
	select {
	case s.granted = <-granted:
		return s, nil
	case err = <-refused:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.end()
	return nil, err
}

// root is the node of everything that the trial keeps.
func (c *zkClient) root() string { return "/lockbench-" + c.o.Name }

// sweep counts the nodes of those who hold a lock or stand in line.
func (c *zkClient) sweep(context.Context) (left int64, err error) {
	rows, _, err := c.own.conn.Children(c.root())
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	remove := func(node string) error {
		if err := c.own.conn.Delete(node, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("removing %s: %w", node, err)
		}
		return nil
	}
	for _, row := range rows {
		row = path.Join(c.root(), row)
		nodes, _, err := c.own.conn.Children(row)
		if err != nil {
			return left, err
		}
		left += int64(len(nodes))
		for _, n := range nodes {
			if err := remove(path.Join(row, n)); err != nil {
				return left, err
			}
		}
		if err := remove(row); err != nil {
			return left, err
		}
	}
	return left, remove(c.root())
}

func (c *zkClient) close() { c.own.end() }

// zkLog takes what the client would print. It is where the client tells how long a session it was granted, and nowhere else.
type zkLog chan time.Duration

// Printf takes a line of the client's log.
func (l zkLog) Printf(format string, args ...any) {
	if !strings.HasPrefix(format, "authenticated: ") || len(args) < 2 {
		return
	}
	if ms, ok := args[1].(int32); ok {
		select {
		case l <- time.Duration(ms) * time.Millisecond:
		default: // told already
		}
	}
}

// zkSession is a session of its own: the lock goes with it.
type zkSession struct {
	frost
	conn    *zk.Conn
	events  <-chan zk.Event // closed when the client has ended
	granted time.Duration   // of the session, when the client is silent
	root    string
	fencing bool
	gone    chan struct{} // closed when the client learns that the session has expired
	stuck   bool          // a node may be left that only the end of the session removes
}

func (s *zkSession) lost() <-chan struct{} { return s.gone }

func (s *zkSession) usable() bool {
	select {
	case <-s.gone:
		return false
	default:
		return !s.stuck
	}
}

func (s *zkSession) close(context.Context) { s.end() }

// end ends the session, and waits until nothing of the client runs any more.
func (s *zkSession) end() {
	s.conn.Close()
	for range s.events {
	}
}

// failed sorts an error of the client.
func (s *zkSession) failed(err error) error {
	select {
	case <-s.gone:
		return errLapsed
	default:
	}
	if errors.Is(err, zk.ErrSessionExpired) {
		return errLapsed
	}
	return err
}

func (s *zkSession) acquire(ctx context.Context, row int64) (int64, func(context.Context), error) {
	mine, err := s.join(path.Join(s.root, strconv.FormatInt(row, 10)))
	if err != nil {
		s.stuck = true // the answer may be what is missing, not the node
		return 0, nil, s.failed(err)
	}
	token, err := s.stand(ctx, mine)
	if err != nil {
		s.leave(mine)
		return 0, nil, err
	}
	return token, func(context.Context) { s.leave(mine) }, nil
}

// join appends a node to the line. The line is made by the first who comes.
func (s *zkSession) join(line string) (string, error) {
	for {
		mine, err := s.conn.CreateProtectedEphemeralSequential(line+"/", nil, zk.WorldACL(zk.PermAll))
		if !errors.Is(err, zk.ErrNoNode) {
			return mine, err
		}
		for _, node := range []string{s.root, line} {
			if _, err := s.conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return "", err
			}
		}
	}
}

// stand waits until nobody is before the node, and returns its fencing token.
func (s *zkSession) stand(ctx context.Context, mine string) (int64, error) {
	line, me := path.Split(mine)
	line = path.Clean(line)
	for {
		nodes, _, err := s.conn.Children(line)
		if err != nil {
			return 0, s.failed(err)
		}
		slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(turn(a), turn(b)) })
		place := slices.Index(nodes, me)
		if place < 0 {
			return 0, errLapsed // with the session whose node it was
		}
		if place == 0 {
			return s.token(mine)
		}
		there, _, changed, err := s.conn.ExistsW(path.Join(line, nodes[place-1]))
		if err != nil {
			return 0, s.failed(err)
		}
		if !there {
			continue
		}
		select {
		case <-changed: // also when the watch is lost; then the line is read again
		case <-s.gone:
			return 0, errLapsed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// token is the transaction that created the node: whoever comes later in line has a later one.
func (s *zkSession) token(mine string) (int64, error) {
	if !s.fencing {
		return 0, nil // it costs a round trip
	}
	there, stat, err := s.conn.Exists(mine)
	switch {
	case err != nil:
		return 0, s.failed(err)
	case !there:
		return 0, errLapsed
	}
	return stat.Czxid, nil
}

// turn is a node's number in line: what follows the last dash, since a protected node's name begins with one that nobody else has.
func turn(node string) string { return node[strings.LastIndexByte(node, '-')+1:] }

// leave removes the node. Where that fails, the end of the session will.
func (s *zkSession) leave(mine string) {
	if err := s.conn.Delete(mine, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		s.stuck = true
	}
}
