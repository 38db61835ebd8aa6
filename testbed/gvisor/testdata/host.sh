# Runs sandbox.sh in a sandbox, which has the devices that config.json names.
ip link set lo up
ip link set "$(ls /sys/class/infiniband/mlx5_0/device/net)" up
timeout 60 sh -c 'until grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state; do sleep 0.1; done'
mkdir /tmp/log
timeout 240 /share/runsc --root=/tmp/runsc --rdmaproxy --ignore-cgroups --network=host --overlay2=none --debug \
	--debug-log=/tmp/log/%COMMAND%.log run --bundle /share sandbox || status=$?
grep -h rdmaproxy /tmp/log/boot.log >/share/boot.log
exit ${status:-0}
