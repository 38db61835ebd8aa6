# Runs two programs that communicate. The client tries until the server listens.
cd /share
./devinfo
./rcpingpong -d mlx5_0 -c -g 1 -n 100 >/tmp/server &
timeout 120 sh -c 'until ./rcpingpong -d mlx5_0 -c -g 1 -n 100 127.0.0.1 >/tmp/client; do :; done'
wait $!
for end in server client; do
	sed "s/^/$end: /" /tmp/$end
done
