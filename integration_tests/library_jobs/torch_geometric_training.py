"""torch_geometric: two graph networks on a random graph, compiled as its tutorial has it."""

import json

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

torch.manual_seed(0)
data = Data(x=torch.randn(20, 8), edge_index=torch.randint(20, (2, 60)), y=torch.randint(3, (20,)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(8, 16), GATConv(16, 3, heads=2, concat=False)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


model = Net()
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(compiled(data.x, data.edge_index), data.y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
compiled.eval()
with torch.no_grad():
    pooled = global_mean_pool(compiled(data.x, data.edge_index), torch.arange(20) // 5)
print(json.dumps({"values": {"losses": losses, "pooled": pooled.tolist()}, "facts": {}}))
